//! The bytes that a signature is of (RFC 9421, section 2.5): a line for each component, and one for what was said about them.

use std::fmt::Write as _;

use super::{MessageError, Request};

/// Something of a request that a signature covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Component {
    Method,
    TargetUri,
    Authority,
    Scheme,
    Path,
    Query,
    /// A header, by its name in lower case.
    Field(String),
}

impl Component {
    /// What this name stands for, if it is supported.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "@method" => Some(Self::Method),
            "@target-uri" => Some(Self::TargetUri),
            "@authority" => Some(Self::Authority),
            "@scheme" => Some(Self::Scheme),
            "@path" => Some(Self::Path),
            "@query" => Some(Self::Query),
            name if is_field_name(name) => Some(Self::Field(name.to_owned())),
            _ => None,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Method => "@method",
            Self::TargetUri => "@target-uri",
            Self::Authority => "@authority",
            Self::Scheme => "@scheme",
            Self::Path => "@path",
            Self::Query => "@query",
            Self::Field(name) => name,
        }
    }

    fn value(&self, request: &Request<'_>) -> Result<String, MessageError> {
        let value = match self {
            Self::Method => request.method.to_owned(),
            Self::TargetUri => target_uri(request),
            Self::Authority => authority(request),
            Self::Scheme => request.scheme.to_ascii_lowercase(),
            Self::Path => path(request).to_owned(),
            // An absent query and an empty one are the same here (RFC 9421, section 2.2.7).
            Self::Query => format!("?{}", request.query.unwrap_or_default()),
            Self::Field(name) => field(request, name).ok_or_else(|| MessageError::Absent(name.clone()))?,
        };
        // A line break in a value would be a component that nobody signed.
        if value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            Ok(value)
        } else {
            Err(MessageError::Component(self.name().to_owned()))
        }
    }
}

/// The signature base.
pub(super) fn signed(
    request: &Request<'_>,
    components: &[Component],
    parameters: &str,
) -> Result<String, MessageError> {
    let mut base = String::new();
    for component in components {
        let value = component.value(request)?;
        writeln!(base, "\"{}\": {value}", component.name()).expect("writing to a string does not fail");
    }
    write!(base, "\"@signature-params\": {parameters}").expect("writing to a string does not fail");
    Ok(base)
}

/// The values of all lines of a header, trimmed and joined (RFC 9421, section 2.1); none if there is no such line.
pub(super) fn field(request: &Request<'_>, name: &str) -> Option<String> {
    let lines = request.fields.iter();
    let lines: Vec<_> = lines
        .filter(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim_matches([' ', '\t']))
        .collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

/// Whether it is the name of a header, in lower case.
fn is_field_name(name: &str) -> bool {
    let is_in =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_in)
}

fn path<'r>(request: &Request<'r>) -> &'r str {
    if request.path.is_empty() {
        "/"
    } else {
        request.path
    }
}

/// The host in lower case, without the port that goes without saying (RFC 9421, section 2.2.3).
fn authority(request: &Request<'_>) -> String {
    let authority = request.authority.to_ascii_lowercase();
    let port = match request.scheme.to_ascii_lowercase().as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return authority,
    };
    authority.strip_suffix(port).unwrap_or(&authority).to_owned()
}

fn target_uri(request: &Request<'_>) -> String {
    let scheme = request.scheme.to_ascii_lowercase();
    let mut uri = format!("{scheme}://{}{}", authority(request), path(request));
    if let Some(query) = request.query {
        uri.push('?');
        uri.push_str(query);
    }
    uri
}
