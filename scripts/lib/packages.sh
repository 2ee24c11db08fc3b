# Installs what a script needs and the machine lacks. Sourced, not run.

# need COMMAND PACKAGE...: makes sure that COMMAND is there, by installing the packages with apt if it is not.
need() {
    local command=$1
    shift
    if ! command -v "$command" >/dev/null; then
        install_for "$command" "$@"
    fi
}

# install_for WHAT PACKAGE...: installs the packages with apt, because WHAT is missing.
install_for() {
    local what=$1
    shift
    if ! command -v apt-get >/dev/null; then
        printf '%s is missing; install it (on Debian: %s)\n' "$what" "$*" >&2
        exit 1
    fi
    printf '%s is missing, installing: %s\n' "$what" "$*" >&2
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}
