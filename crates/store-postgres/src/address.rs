//! From a URL to where the database is, and how that is called in messages.
//!
//! A URL holds a password, so neither the URL nor any piece of it that could be a badly written password is ever
//! repeated. What the URL leaves out the driver takes from the environment by itself; this only sees to it that
//! nothing that it reads there is misread in silence.

use crate::OpenError;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use tracing::dispatcher::{Dispatch, with_default};

/// What may stand behind the `?`. Anything else is refused: the driver would log it, value and all, and go on.
const PARAMETERS: [&str; 12] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// Where the database is.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) options: PgConnectOptions,
}

impl Address {
    /// The address that a URL such as `postgres://user:password@host:5432/database?sslmode=verify-full` names. What it
    /// leaves out is taken from where PostgreSQL's own programs take it, such as `PGPASSWORD` and `~/.pgpass`; but a
    /// user has to be named. What that file has that cannot be read is passed over without a word.
    pub(crate) fn parse(url: &str) -> Result<Self, OpenError> {
        Self::parse_in(url, environment)
    }

    /// The address that a URL names, as [`Self::parse`] has it, where `variable` says what variables hold.
    fn parse_in(url: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, OpenError> {
        let refuse = |expected| OpenError::Url { expected };
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or_else(|| refuse("it should look like `postgres://user:password@host:5432/database`"))?;
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let path = place.split_once('/').map_or("", |(_, path)| path);
        // A password with one of these characters in it ends where the character stands, and the rest of it is taken for a
        // host, a port or a database.
        if url.contains('#') || path.contains('@') {
            return Err(refuse(
                "in the user and the password `/`, `?`, `#`, `@` and `%` are written as `%2F`, `%3F`, `%23`, `%40` and `%25`",
            ));
        }
        let pieces = Pieces::of(place, parameters);
        pieces.check_parameters()?;
        pieces.check_environment(&variable)?;
        // The driver's error says which part it is, such as the port, and may repeat it: that part may be half a password.
        let options = in_silence(|| PgConnectOptions::from_str(&pieces.for_the_driver(url)));
        let options = options.map_err(|_| refuse(pieces.unreadable()))?;
        pieces.check_host()?;
        let (name, mode) = pieces.mode(&options, &variable);
        check_mode(name, mode)?;
        pieces.check_authority(mode, &variable)?;
        let user = variable("PGUSER").and_then(|user| user.into_string().ok());
        if !pieces.has_user() && user.is_none_or(|user| user.is_empty()) {
            return Err(OpenError::Nobody);
        }
        Ok(Self { options })
    }

    /// The database's name: the user's, unless the URL says otherwise.
    pub(crate) fn database(&self) -> &str {
        let options = &self.options;
        options.get_database().unwrap_or_else(|| options.get_username())
    }

    /// Who connects.
    pub(crate) fn user(&self) -> &str {
        self.options.get_username()
    }

    /// Whether the server is reached through a socket of this machine.
    pub(crate) fn is_socket(&self) -> bool {
        self.options.get_socket().is_some() || self.options.get_host().starts_with('/')
    }

    /// The server.
    pub(crate) fn server(&self) -> String {
        let (host, port) = (self.options.get_host(), self.options.get_port());
        match self.options.get_socket() {
            Some(folder) => format!("{}:{port}", folder.display()),
            None if host.parse::<Ipv6Addr>().is_ok() => format!("[{host}]:{port}"),
            None => format!("{host}:{port}"),
        }
    }
}

/// Does what the driver does, without what it logs: of a file of passwords it repeats each line that it cannot read.
fn in_silence<T>(work: impl FnOnce() -> T) -> T {
    with_default(&Dispatch::none(), work)
}

/// Refuses a mode in which the driver does not do what PostgreSQL's own programs do.
fn check_mode(name: &'static str, mode: PgSslMode) -> Result<(), OpenError> {
    let told = match mode {
        PgSslMode::Disable | PgSslMode::Prefer | PgSslMode::Require | PgSslMode::VerifyFull => return Ok(()),
        PgSslMode::Allow => {
            "`allow`, with which TLS would never be used: use `prefer`, which uses it where the server has it, or `disable`"
        }
        // The driver adds the file of `sslrootcert` to the roots of the web, and looks at no name then: who has a name
        // there has a certificate, too.
        PgSslMode::VerifyCa => {
            "`verify-ca`, which would believe whoever has a certificate of an authority of the web, for whatever name: use `verify-full`"
        }
    };
    Err(OpenError::Mode { name, told })
}

/// What a variable of the environment holds.
fn environment(variable: &str) -> Option<OsString> {
    std::env::var_os(variable)
}

/// The pieces of a URL, as they are written there.
struct Pieces<'u> {
    /// The user and the password, before the `@`.
    user: &'u str,
    /// The host and the port.
    host: &'u str,
    /// What stands behind the `?`.
    parameters: &'u str,
}

impl<'u> Pieces<'u> {
    /// Those of a URL without its scheme, before the `?` and behind it.
    fn of(place: &'u str, parameters: &'u str) -> Self {
        let authority = place.split('/').next().unwrap_or(place);
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        Self {
            user,
            host,
            parameters,
        }
    }

    /// The URL as the driver is given it. An address of IPv6 stands once more behind the `?`, where it counts more and
    /// has no brackets: the driver would look for a host that is called so, with them. It is not set afterwards,
    /// because the driver looks the password up by the host while it reads the URL.
    fn for_the_driver<'t>(&self, url: &'t str) -> Cow<'t, str> {
        match self.host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((address, _)) if !self.has("host") => {
                let mark = if url.contains('?') { '&' } else { '?' };
                Cow::Owned(format!("{url}{mark}host={address}"))
            }
            _ => Cow::Borrowed(url),
        }
    }

    /// The names of the parameters.
    fn names(&self) -> Vec<&'u str> {
        if self.parameters.is_empty() {
            return Vec::new();
        }
        let pairs = self.parameters.split('&');
        pairs.map(|pair| pair.split('=').next().unwrap_or(pair)).collect()
    }

    fn has(&self, parameter: &str) -> bool {
        self.names().contains(&parameter)
    }

    fn has_user(&self) -> bool {
        let user = self.user.split(':').next();
        user.is_some_and(|user| !user.is_empty()) || self.has("user")
    }

    fn has_port(&self) -> bool {
        // Colons between brackets are part of an address.
        let behind = self.host.rsplit(']').next().unwrap_or(self.host);
        let port = behind.split_once(':').map(|(_, port)| port);
        port.is_some_and(|port| !port.is_empty()) || self.has("port")
    }

    /// What a parameter is set to.
    fn value(&self, parameter: &str) -> Option<&'u str> {
        let mut pairs = self
            .parameters
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.find(|(name, _)| *name == parameter).map(|(_, value)| value)
    }

    /// How the server is reached, and where that is said: in the URL, as the driver has read it, or in `PGSSLMODE`.
    fn mode(
        &self,
        options: &PgConnectOptions,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> (&'static str, PgSslMode) {
        if self.has("sslmode") {
            return ("sslmode", options.get_ssl_mode());
        }
        let mode = variable("PGSSLMODE").and_then(|mode| PgSslMode::from_str(mode.to_str()?).ok());
        ("PGSSLMODE", mode.unwrap_or_default())
    }

    /// Which part of a URL that the driver does not take it is, as far as that can be told, and what could stand there.
    fn unreadable(&self) -> &'static str {
        let is_no_port = |port: &str| !port.is_empty() && port.parse::<u16>().is_err();
        let behind = self.host.rsplit(']').next().unwrap_or(self.host);
        let port = behind.split_once(':').map_or("", |(_, port)| port);
        if self
            .value("sslmode")
            .is_some_and(|mode| PgSslMode::from_str(mode).is_err())
        {
            "its `sslmode` cannot be read: it is `disable`, `prefer`, `require` or `verify-full`"
        } else if self
            .value("port")
            .is_some_and(|port| port.parse::<u16>().is_err())
        {
            "its `port` behind the `?` cannot be read: it is a number up to 65535"
        } else if is_no_port(port) {
            "its host or its port cannot be read: a port is a number up to 65535"
        } else {
            "its host, port or parameters cannot be read"
        }
    }

    /// Refuses a parameter that is not known.
    fn check_parameters(&self) -> Result<(), OpenError> {
        let mut names = self.names().into_iter();
        let Some(name) = names.find(|name| !PARAMETERS.contains(name)) else {
            return Ok(());
        };
        let found = if self.may_be_told(name) {
            format!("`{name}`")
        } else {
            "one".to_owned()
        };
        Err(OpenError::Parameter {
            found,
            known: PARAMETERS.map(|name| format!("`{name}`")).join(", "),
        })
    }

    /// Refuses an address beside a host, where PostgreSQL's own programs connect to the one and ask for a certificate
    /// of the other: the driver has one of the two for both.
    fn check_host(&self) -> Result<(), OpenError> {
        if self.has("hostaddr") && (!self.host.is_empty() || self.has("host")) {
            return Err(OpenError::Url {
                expected: "its `hostaddr` would be taken in place of its host, also where the server's certificate is verified: name one of the two",
            });
        }
        Ok(())
    }

    /// Refuses a certificate of an authority that the driver would not hold the server's against: it goes by the file
    /// only where it verifies, and PostgreSQL's own programs in `require` as well. The variable may be there for other
    /// programs, and without TLS there is no certificate at all.
    fn check_authority(
        &self,
        mode: PgSslMode,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(), OpenError> {
        if matches!(mode, PgSslMode::VerifyFull) {
            return Ok(());
        }
        let name = if self.has("sslrootcert") {
            "sslrootcert"
        } else if !matches!(mode, PgSslMode::Disable)
            && variable("PGSSLROOTCERT").is_some_and(|file| !file.is_empty())
        {
            "PGSSLROOTCERT"
        } else {
            return Ok(());
        };
        Err(OpenError::Authority { name })
    }

    /// Whether the name of a parameter is surely no piece of a password. One with a `?` in it has an `@` behind that,
    /// and one with a `&` in it stands behind `password=`.
    fn may_be_told(&self, name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-');
        let has_password = self.parameters.contains('@') || self.parameters.contains("password");
        !has_password && !name.is_empty() && name.bytes().all(is_plain)
    }

    /// Refuses what the driver would take from the environment and, if it knows no such word, pass over in silence:
    /// whoever has misspelt `verify-full` would be connected to anybody.
    fn check_environment(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<(), OpenError> {
        let is_mode: fn(&str) -> bool = |text| PgSslMode::from_str(text).is_ok();
        // An empty one is none, for PostgreSQL's own programs too.
        let is_port: fn(&str) -> bool = |text| text.is_empty() || text.parse::<u16>().is_ok();
        let modes = "`disable`, `prefer`, `require` or `verify-full`";
        for (name, is_known, is_in_url, expected) in [
            ("PGSSLMODE", is_mode, self.has("sslmode"), modes),
            ("PGPORT", is_port, self.has_port(), "a number up to 65535"),
        ] {
            if let Some(found) = variable(name)
                && !is_in_url
                && !found.to_str().is_some_and(is_known)
            {
                return Err(OpenError::Variable {
                    name,
                    found: found.to_string_lossy().into_owned(),
                    expected,
                });
            }
        }
        Ok(())
    }
}

/// Everything but the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server(), self.database())
    }
}

/// As it is displayed: what the driver prints of its options has the password in it.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server_and_a_database() {
        for (url, expected) in [
            ("postgres://u:p@db.example:6000/ledger", "db.example:6000/ledger"),
            (
                "postgresql://u@db.example:6000/ledger?sslmode=require",
                "db.example:6000/ledger",
            ),
            ("postgres://u:p%2F%40%23@db.example:6000", "db.example:6000/u"),
            ("postgres://u:p@[::1]:6000/a%20b", "[::1]:6000/a b"),
            (
                "postgres://u:p@ss@db.example:6000/ledger",
                "db.example:6000/ledger",
            ),
            (
                "postgres:///ledger?host=/run/pg&port=6000&user=u",
                "/run/pg:6000/ledger",
            ),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.to_string(), expected, "{url}");
            assert_eq!(format!("{address:?}"), expected);
        }
    }

    #[test]
    fn an_address_of_ipv6_has_brackets_where_it_is_shown_and_none_where_it_is_connected_to() {
        for url in [
            "postgres://u:p@[::1]:6000/ledger",
            "postgres://u:p@[::1]:6000/ledger?",
            "postgres://u:p@[::1]:6000/ledger?sslmode=require",
            "postgres:///ledger?host=::1&port=6000&user=u",
            "postgres:///ledger?hostaddr=::1&port=6000&user=u",
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.options.get_host(), "::1", "{url}");
            assert_eq!(address.to_string(), "[::1]:6000/ledger", "{url}");
        }
        // What stands behind the `?` counts more, as it does beside a name.
        let address = Address::parse("postgres://u@[::1]/ledger?host=db.example").unwrap();
        assert_eq!(address.options.get_host(), "db.example");
        assert!(Address::parse("postgres://u@[::1&port=1]/ledger").is_err());
    }

    #[test]
    fn whatever_is_wrong_with_a_url_no_part_of_it_is_repeated() {
        for (url, hint) in [
            ("mysql://u:12345@host/ledger", "look like"),
            ("postgres:u:12345@host/ledger", "look like"),
            ("12345", "look like"),
            ("postgres://u:12345/67@host/ledger", "`%2F`"),
            ("postgres://u:12345#67@host/ledger", "`%23`"),
            ("postgres://u:12345?67@host/ledger", "parameters"),
            ("postgres://u:p@host/ledger?pasword=12345", "parameters"),
            ("postgres://u:p@host/ledger?sslmode=12345", "its `sslmode` cannot"),
            ("postgres://u:p@host/ledger?port=1234567", "its `port` behind"),
            ("postgres://u:p@host/ledger?port=", "its `port` behind"),
            ("postgres://u:12345:67/ledger", "its host or its port cannot"),
            ("postgres://u:p@host:1234567/ledger", "a number up to 65535"),
        ] {
            let error = Address::parse(url).unwrap_err();
            let message = format!("{error} {error:?}");
            assert!(message.contains(hint), "{url}: {message}");
            assert!(!message.contains("12345"), "{url}: {message}");
        }
    }

    #[test]
    fn a_parameter_that_is_not_known_is_named_unless_it_may_be_a_piece_of_a_password() {
        for (parameters, told) in [
            ("connect_timeout=3", "`connect_timeout` is none of these"),
            ("sslmode=require&ssl-mode=x", "`ssl-mode` is none of these"),
            ("secret@db.example/ledger", "one is none of these"),
            ("password=a&secret", "one is none of these"),
            ("sslmode=require&", "one is none of these"),
        ] {
            let url = format!("postgres://u:p@host/ledger?{parameters}");
            let message = Address::parse(&url).unwrap_err().to_string();
            assert!(message.contains(told), "{url}: {message}");
            assert!(message.contains("`sslrootcert`"), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn the_guide_lists_the_parameters() {
        let guide = include_str!("../../../docs/operations.md");
        let words: Vec<_> = guide.split_whitespace().collect();
        let list = PARAMETERS.map(|name| format!("`{name}`")).join(", ");
        assert!(words.join(" ").contains(&list), "{list}");
    }

    /// What is said of a URL where one variable holds this.
    fn said(url: &str, name: &str, held: &str) -> Option<String> {
        let variable = |asked: &str| (asked == name).then(|| OsString::from(held));
        let refused = Address::parse_in(url, variable).err();
        refused.map(|error| error.to_string())
    }

    #[test]
    fn a_variable_that_the_driver_would_pass_over_is_refused() {
        let url = "postgres://u@host/ledger";
        for (name, held) in [
            ("PGSSLMODE", "verify_full"),
            ("PGSSLMODE", ""),
            ("PGPORT", "abc"),
            ("PGPORT", "65536"),
        ] {
            let message = said(url, name, held).unwrap();
            assert!(message.starts_with(&format!("`{name}` is `{held}`")), "{message}");
        }
        for (name, held) in [
            ("PGSSLMODE", "verify-full"),
            ("PGSSLMODE", "VERIFY-FULL"),
            ("PGPORT", "6000"),
            ("PGPORT", ""),
        ] {
            assert_eq!(said(url, name, held), None, "{name} {held}");
        }
    }

    #[test]
    fn what_a_url_says_itself_is_not_looked_up() {
        for (url, name) in [
            ("postgres://u@host/ledger?sslmode=require", "PGSSLMODE"),
            ("postgres://u@host:6000/ledger", "PGPORT"),
            ("postgres://u@[::1]:6000/ledger", "PGPORT"),
            ("postgres://u@host/ledger?port=6000", "PGPORT"),
        ] {
            assert_eq!(said(url, name, "wrong"), None, "{url}");
        }
        for url in [
            "postgres://u:1@host/ledger",
            "postgres://u@[::1]/ledger",
            "postgres://u@host:",
        ] {
            let message = said(url, "PGPORT", "wrong").unwrap();
            assert!(message.contains("`PGPORT`"), "{url}: {message}");
        }
    }

    #[test]
    fn a_mode_in_which_another_server_would_be_believed_is_refused() {
        for mode in ["verify-ca", "VERIFY-CA"] {
            let message = said("postgres://u@host/ledger", "PGSSLMODE", mode).unwrap();
            assert!(message.starts_with("`PGSSLMODE` is `verify-ca`"), "{message}");
            assert!(message.contains("use `verify-full`"), "{message}");
            let url = format!("postgres://u@host/ledger?sslmode={mode}");
            let message = said(&url, "PGSSLMODE", "verify-full").unwrap();
            assert!(message.starts_with("`sslmode` is `verify-ca`"), "{message}");
        }
        // As the driver reads it: the last one counts, however it is written.
        for parameters in ["sslmode=verify%2Dca", "sslmode=verify-full&sslmode=verify-ca"] {
            let url = format!("postgres://u@host/ledger?{parameters}");
            assert!(said(&url, "PGSSLMODE", "verify-full").is_some(), "{url}");
        }
        let url = "postgres://u@host/ledger?sslmode=verify-full";
        assert_eq!(said(url, "PGSSLMODE", "verify-ca"), None);
    }

    #[test]
    fn a_mode_in_which_tls_would_never_be_used_is_refused() {
        let message = said("postgres://u@host/ledger", "PGSSLMODE", "allow").unwrap();
        assert!(message.starts_with("`PGSSLMODE` is `allow`"), "{message}");
        let message = said("postgres://u@host/ledger?sslmode=Allow", "PGSSLMODE", "prefer").unwrap();
        assert!(message.starts_with("`sslmode` is `allow`"), "{message}");
        assert!(message.contains("use `prefer`"), "{message}");
        for mode in ["disable", "prefer", "require", "verify-full"] {
            assert_eq!(
                said("postgres://u@host/ledger", "PGSSLMODE", mode),
                None,
                "{mode}"
            );
        }
    }

    #[test]
    fn an_address_beside_a_host_is_refused() {
        for url in [
            "postgres://u@db.example/ledger?hostaddr=10.0.0.5",
            "postgres://u@[::1]:6000/ledger?hostaddr=10.0.0.5",
            "postgres:///ledger?user=u&host=db.example&hostaddr=10.0.0.5",
            "postgres:///ledger?user=u&hostaddr=10.0.0.5&host=/run/pg",
        ] {
            let message = Address::parse(url).unwrap_err().to_string();
            assert!(message.contains("`hostaddr`"), "{url}: {message}");
        }
        let address = Address::parse("postgres:///ledger?user=u&hostaddr=10.0.0.5").unwrap();
        assert_eq!(address.options.get_host(), "10.0.0.5");
    }

    #[test]
    fn an_authority_that_nobody_is_held_against_is_refused() {
        for mode in ["", "&sslmode=disable", "&sslmode=prefer", "&sslmode=require"] {
            let url = format!("postgres://u@host/ledger?application_name=a{mode}");
            let message = said(&format!("{url}&sslrootcert=own.pem"), "PGSSLROOTCERT", "").unwrap();
            assert!(message.starts_with("`sslrootcert` names"), "{url}: {message}");
            let message = said(&url, "PGSSLROOTCERT", "own.pem");
            if mode.ends_with("disable") {
                assert_eq!(message, None, "{url}");
            } else {
                let message = message.unwrap();
                assert!(message.starts_with("`PGSSLROOTCERT` names"), "{url}: {message}");
                assert!(message.contains("`sslmode=verify-full`"), "{message}");
            }
            assert_eq!(said(&url, "PGSSLROOTCERT", ""), None, "{url}");
        }
        let url = "postgres://u@host/ledger?sslmode=verify-full";
        assert_eq!(said(url, "PGSSLROOTCERT", "own.pem"), None);
        let url = "postgres://u@host/ledger?sslrootcert=own.pem";
        assert_eq!(said(url, "PGSSLMODE", "verify-full"), None);
        assert!(said(url, "PGSSLMODE", "require").is_some());
        assert!(said(&format!("{url}&sslmode=require"), "PGSSLMODE", "verify-full").is_some());
    }

    /// The driver would call itself `anonymous`.
    #[test]
    fn a_user_is_named_in_the_url_or_in_the_environment() {
        for url in [
            "postgres://host/ledger",
            "postgres://:secret@host/ledger",
            "postgres://",
        ] {
            let message = said(url, "PGUSER", "").unwrap();
            assert!(message.contains("in it or in `PGUSER`"), "{url}: {message}");
            assert_eq!(said(url, "PGUSER", "ann"), None, "{url}");
        }
    }
}
