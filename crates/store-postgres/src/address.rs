//! From a URL to where the database is, and how that is called in messages.
//!
//! A URL holds a password, so neither the URL nor any piece of it that could be a badly written password is ever repeated.

use crate::OpenError;
use sqlx::postgres::PgConnectOptions;
use std::fmt;
use std::str::FromStr;

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
    /// leaves out is taken from where PostgreSQL's own programs take it, such as `PGPASSWORD` and `~/.pgpass`.
    pub(crate) fn parse(url: &str) -> Result<Self, OpenError> {
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
        let mut names = parameters
            .split('&')
            .map(|pair| pair.split('=').next().unwrap_or(pair));
        if !parameters.is_empty() && !names.all(|name| PARAMETERS.contains(&name)) {
            return Err(refuse(
                "the parameters behind its `?` should be among those of the manual, such as `sslmode=verify-full`",
            ));
        }
        // The driver's error says which part it is, such as the port, and may repeat it: that part may be half a password.
        let options = PgConnectOptions::from_str(url);
        let options = options.map_err(|_| refuse("its host, port or parameters cannot be read"))?;
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

    /// The server.
    pub(crate) fn server(&self) -> String {
        let port = self.options.get_port();
        match self.options.get_socket() {
            Some(folder) => format!("{}:{port}", folder.display()),
            None => format!("{}:{port}", self.options.get_host()),
        }
    }
}

/// Everything but the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server(), self.database())
    }
}

/// The same: what the driver prints of its options has the password in it.
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
    fn whatever_is_wrong_with_a_url_no_part_of_it_is_repeated() {
        for (url, hint) in [
            ("mysql://u:12345@host/ledger", "look like"),
            ("postgres:u:12345@host/ledger", "look like"),
            ("12345", "look like"),
            ("postgres://u:12345/67@host/ledger", "`%2F`"),
            ("postgres://u:12345#67@host/ledger", "`%23`"),
            ("postgres://u:12345?67@host/ledger", "parameters"),
            ("postgres://u:p@host/ledger?pasword=12345", "parameters"),
            ("postgres://u:p@host/ledger?sslmode=12345", "cannot be read"),
            ("postgres://u:12345:67/ledger", "cannot be read"),
            ("postgres://u:p@host:1234567/ledger", "cannot be read"),
        ] {
            let error = Address::parse(url).unwrap_err();
            let message = format!("{error} {error:?}");
            assert!(message.contains(hint), "{url}: {message}");
            assert!(!message.contains("12345"), "{url}: {message}");
        }
    }
}
