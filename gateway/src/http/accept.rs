//! What a caller accepts, and how gladly: the media ranges of `Accept` with their weights (RFC 9110, section 12.5.1).
//!
//! Only a type that is named counts. Whoever accepts anything gets JSON.

use axum::http::{HeaderMap, header};

/// The ranges of all lines of `Accept`.
pub(crate) struct Accepted<'h>(Vec<(&'h str, u16)>);

impl<'h> Accepted<'h> {
    pub(crate) fn of(headers: &'h HeaderMap) -> Self {
        let ranges = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok());
        Self(ranges.flat_map(|value| value.split(',')).map(weighed).collect())
    }

    /// The weight of a type in thousandths, the highest if it is named more than once. 0 is what is not accepted.
    pub(crate) fn weight(&self, name: &str) -> Option<u16> {
        let named = self
            .0
            .iter()
            .filter(|(range, _)| range.eq_ignore_ascii_case(name));
        named.map(|(_, weight)| *weight).max()
    }
}

/// A media range and its weight in thousandths (RFC 9110, section 12.4.2).
fn weighed(range: &str) -> (&str, u16) {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|parameter| {
        parameter
            .strip_prefix("q=")
            .or_else(|| parameter.strip_prefix("Q="))
    });
    let thousandths = weight.map_or(Some(1_000), |weight| {
        let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
        let digits = format!("{whole}{fraction:0<3}");
        (digits.len() == 4).then(|| digits.parse().ok()).flatten()
    });
    (name, thousandths.unwrap_or(0).min(1_000))
}
