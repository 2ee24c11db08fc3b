# Throw-away PostgreSQL servers: installed where missing, made in a folder, durable like a real one. Sourced, not run;
# `scripts/postgres` and `scripts/with-postgres` are the commands.
#
# A server listens on 127.0.0.1 at a port of its own and on a socket in its folder, wants a password (SCRAM) and offers TLS
# with a certificate of its own authority, so that nothing that can go wrong with a real server has to be imagined.

# shellcheck source=scripts/lib/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"

# The oldest server that the store takes.
POSTGRES_VERSION_MIN=15
# What tests open at once: as many of them as there are cores, and most with several gateways.
POSTGRES_CONNECTIONS_MAX=$((300 + 40 * $(getconf _NPROCESSORS_ONLN)))

# postgres_programs: prints the folder of the newest server's programs. Debian keeps them out of the PATH.
postgres_programs() {
    local found
    found=$(postgres_find)
    if [ -z "$found" ]; then
        install_for "PostgreSQL $POSTGRES_VERSION_MIN or newer" postgresql
        found=$(postgres_find)
    fi
    if [ -z "$found" ]; then
        printf 'there is no PostgreSQL %s or newer here: install one\n' "$POSTGRES_VERSION_MIN" >&2
        exit 1
    fi
    printf '%s\n' "$found"
}

postgres_find() {
    local folder version newest=0 found=
    for folder in /usr/lib/postgresql/*/bin "$(dirname "$(command -v pg_ctl || true)")"; do
        if [ -x "$folder/pg_ctl" ] && [ -x "$folder/initdb" ]; then
            version=$("$folder/pg_ctl" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
            if [ "$version" -ge "$POSTGRES_VERSION_MIN" ] && [ "$version" -gt "$newest" ]; then
                newest=$version
                found=$folder
            fi
        fi
    done
    printf '%s' "$found"
}

# as_server FOLDER COMMAND...: runs a command as the server's user, who is never root: PostgreSQL refuses to serve as root.
as_server() {
    local folder=$1
    shift
    if [ "$(id -u)" -ne 0 ]; then
        (cd "$folder" && "$@")
    else
        (cd "$folder" && runuser -u "$(server_user)" -- "$@")
    fi
}

server_user() {
    if id postgres >/dev/null 2>&1; then echo postgres; else echo nobody; fi
}

# postgres_make FOLDER: makes a server in an empty folder.
postgres_make() {
    local folder=$1 programs password
    programs=$(postgres_programs)
    need openssl openssl
    need python3 python3
    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    mkdir "$folder/data" "$folder/socket"
    printf '%s\n' "$password" >"$folder/password"
    make_certificate "$folder"
    chmod 755 "$folder" "$folder/socket"
    # The server's user reads the certificate, however strict the umask is.
    chmod 644 "$folder/server.pem" "$folder/authority.pem"
    chmod 600 "$folder/password" "$folder/server.key"
    if [ "$(id -u)" -eq 0 ]; then
        chown "$(server_user)" "$folder/data" "$folder/socket" "$folder/password" "$folder/server.key"
    fi
    printf '%s\n' "$programs" >"$folder/programs"
    as_server "$folder" "$programs/initdb" --pgdata="$folder/data" --username=countersign --pwfile="$folder/password" \
        --auth=scram-sha-256 --encoding=UTF8 --no-locale --no-instructions >"$folder/initdb.log"
    # Without fsync a server that is killed loses nothing, only a machine without power does; and making and dropping a
    # database a test takes a tenth of the time. Whoever measures sets COUNTERSIGN_POSTGRES_FSYNC=on.
    as_server "$folder" tee -a "$folder/data/postgresql.conf" >/dev/null <<CONFIGURATION
listen_addresses = '127.0.0.1'
unix_socket_directories = '$folder/socket'
max_connections = $POSTGRES_CONNECTIONS_MAX
fsync = ${COUNTERSIGN_POSTGRES_FSYNC:-off}
synchronous_commit = on
ssl = on
ssl_cert_file = '$folder/server.pem'
ssl_key_file = '$folder/server.key'
CONFIGURATION
}

# make_certificate FOLDER: an authority, and a certificate of it for localhost. Valid for days only: it is thrown away.
make_certificate() {
    local folder=$1 curve=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
    openssl req -x509 "${curve[@]}" -days 3 -subj '/CN=throw-away authority' \
        -keyout "$folder/authority.key" -out "$folder/authority.pem" 2>/dev/null
    openssl req "${curve[@]}" -subj '/CN=localhost' \
        -keyout "$folder/server.key" -out "$folder/server.csr" 2>/dev/null
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1\n' >"$folder/server.ext"
    openssl x509 -req -in "$folder/server.csr" -CA "$folder/authority.pem" -CAkey "$folder/authority.key" \
        -CAcreateserial -days 3 -extfile "$folder/server.ext" -out "$folder/server.pem" 2>/dev/null
}

# postgres_start FOLDER: starts the server, at the port that it had before if there was one, and prints its URL.
postgres_start() {
    local folder=$1 port
    for _ in 1 2 3 4 5; do
        port=$(cat "$folder/port" 2>/dev/null || free_port)
        if as_server "$folder" "$(cat "$folder/programs")/pg_ctl" start --wait --timeout=60 --silent \
            --pgdata="$folder/data" --log="$folder/data/log" --options="-p $port" >&2 </dev/null; then
            printf '%s\n' "$port" >"$folder/port"
            printf 'postgres://countersign:%s@127.0.0.1:%s/postgres?sslmode=disable\n' "$(cat "$folder/password")" "$port"
            return
        fi
    done
    as_server "$folder" tail -n 20 "$folder/data/log" >&2
    exit 1
}

# free_port: prints a port that was free a moment ago. It is below those that the system gives to whoever connects, who might
# have it before the server does.
free_port() {
    python3 -c '
import random, socket
for port in random.sample(range(20000, 32000), 100):
    try:
        socket.socket().bind(("127.0.0.1", port))
    except OSError:
        continue
    print(port)
    break
'
}

# postgres_stop FOLDER MODE: stops the server: `fast` breaks transactions off, `immediate` is a crash.
postgres_stop() {
    as_server "$1" "$(cat "$1/programs")/pg_ctl" stop --wait --timeout=60 --silent --pgdata="$1/data" --mode="$2" >&2
}
