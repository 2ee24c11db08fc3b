//! What a run has to come to: bounds on the numbers of its report, in a file.
//!
//! ```toml
//! [mixed]                          # the profile
//! per_second = { min = 20_000 }    # a number of the report as JSON
//! latency_ms.p99 = { max = 7 }
//! ```
//!
//! A bound on a number that the report does not have is missed: a misspelt one would hold for ever.

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use toml::{Table, Value as Toml};

/// The bounds for one profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Sla(Vec<Bound>);

#[derive(Debug, Clone, PartialEq)]
struct Bound {
    /// Where in the report the number stands, part by part.
    path: Vec<String>,
    min: Option<f64>,
    max: Option<f64>,
}

impl Sla {
    /// The bounds of a profile in the text of a file.
    ///
    /// # Errors
    /// It is not TOML, has no such profile, or a bound is none.
    pub fn parse(text: &str, profile: &str) -> Result<Self> {
        let file: Table = text.parse().context("not TOML")?;
        let section = file
            .get(profile)
            .with_context(|| format!("there are no bounds for `{profile}`"))?;
        let section = section
            .as_table()
            .with_context(|| format!("`{profile}` is not a table"))?;
        let mut bounds = Vec::new();
        collect(section, &mut Vec::new(), &mut bounds)?;
        ensure!(!bounds.is_empty(), "there are no bounds for `{profile}`");
        Ok(Self(bounds))
    }

    /// The bounds that a run has missed, each in words; empty if it has missed none.
    ///
    /// # Errors
    /// The report cannot be read as JSON, which does not happen.
    pub fn misses(&self, report: &impl Serialize) -> Result<Vec<String>> {
        let report = serde_json::to_value(report)?;
        Ok(self.0.iter().filter_map(|bound| bound.miss(&report)).collect())
    }
}

impl Bound {
    fn miss(&self, report: &Value) -> Option<String> {
        let name = self.path.join(".");
        let found = self.path.iter().try_fold(report, |value, part| value.get(part));
        let Some(found) = found.and_then(Value::as_f64) else {
            return Some(format!("the report has no number `{name}`"));
        };
        if let Some(min) = self.min.filter(|min| found < *min) {
            return Some(format!("`{name}` is {found}, and has to be {min} or more"));
        }
        let max = self.max.filter(|max| found > *max)?;
        Some(format!("`{name}` is {found}, and has to be {max} or less"))
    }
}

/// Every bound below a table.
fn collect(table: &Table, path: &mut Vec<String>, bounds: &mut Vec<Bound>) -> Result<()> {
    for (name, value) in table {
        path.push(name.clone());
        let place = path.join(".");
        let inner = value
            .as_table()
            .with_context(|| format!("`{place}` is not a bound: give it a `min` or a `max`"))?;
        // A table named `max` is the number of that name in the report.
        if ["min", "max"]
            .iter()
            .any(|key| inner.get(*key).is_some_and(|value| !value.is_table()))
        {
            bounds.push(bound(inner, path.clone())?);
        } else {
            ensure!(!inner.is_empty(), "`{place}` has no bound");
            collect(inner, path, bounds)?;
        }
        path.pop();
    }
    Ok(())
}

fn bound(table: &Table, path: Vec<String>) -> Result<Bound> {
    let place = path.join(".");
    if let Some(other) = table.keys().find(|key| !["min", "max"].contains(&key.as_str())) {
        bail!("`{place}` has `{other}` beside its bounds");
    }
    let number = |name: &str| -> Result<Option<f64>> {
        let Some(value) = table.get(name) else {
            return Ok(None);
        };
        number(value)
            .map(Some)
            .with_context(|| format!("`{place}.{name}` is not a number"))
    };
    Ok(Bound {
        min: number("min")?,
        max: number("max")?,
        path,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a bound is far below 2^52")]
fn number(value: &Toml) -> Option<f64> {
    value
        .as_float()
        .or_else(|| value.as_integer().map(|integer| integer as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Profile;
    use crate::load::fairness::Fairness;
    use crate::load::report::{self, tests::report};
    use clap::ValueEnum as _;

    fn misses(text: &str) -> Vec<String> {
        Sla::parse(text, "light")
            .unwrap()
            .misses(&report(|_, _| ()))
            .unwrap()
    }

    #[test]
    fn bounds_that_hold_are_no_misses() {
        let text = "[light]\nper_second = { min = 1, max = 2.5 }\nlatency_ms.p99 = { max = 4 }\n[light.outcomes]\nerrors = { max = 0 }";
        assert_eq!(misses(text), Vec::<String>::new());
    }

    #[test]
    fn every_miss_is_told() {
        let text =
            "[light]\nper_second = { min = 28_000 }\nlatency_ms = { p50 = { max = 0.3 }, p99 = { max = 7 } }";
        assert_eq!(
            misses(text),
            [
                "`latency_ms.p50` is 2, and has to be 0.3 or less",
                "`per_second` is 1.5, and has to be 28000 or more"
            ]
        );
    }

    #[test]
    fn a_number_can_be_called_as_a_bound_is() {
        let text = "[light]\nlatency_ms.max = { max = 2.5 }";
        assert_eq!(
            misses(text),
            ["`latency_ms.max` is 3.001, and has to be 2.5 or less"]
        );
    }

    #[test]
    fn a_number_that_is_not_there_is_a_miss() {
        for name in [
            "per_secnd",
            "latency_ms",
            "latency_ms.p98",
            "machine.processor",
            "cpu.gateway_cores",
        ] {
            let text = format!("[light]\n{name} = {{ max = 1 }}");
            assert_eq!(misses(&text), [format!("the report has no number `{name}`")]);
        }
    }

    #[test]
    fn every_profile_has_bounds_in_the_file_of_this_repository() {
        let text = include_str!("../../sla.toml");
        for profile in Profile::value_variants() {
            let sla = Sla::parse(text, &profile.name());
            assert!(sla.is_ok(), "{profile:?}: {sla:?}");
        }
        for name in ["postgres", "slow-disk"] {
            assert!(Sla::parse(text, name).is_ok(), "{name}");
        }
    }

    #[test]
    fn bounds_of_this_repository_are_on_numbers_that_runs_have() {
        let text = include_str!("../../sla.toml");
        let report = report::tests::overloaded();
        for name in [
            "closed",
            "one-caller",
            "calm",
            "brisk",
            "slow-disk",
            "overload",
            "soak",
        ] {
            let misses = Sla::parse(text, name).unwrap().misses(&report).unwrap();
            let absent = misses.iter().filter(|miss| miss.contains("has no number"));
            assert_eq!(absent.collect::<Vec<_>>(), Vec::<&String>::new(), "{name}");
        }
    }

    /// The places in a report that say how many cores were stolen from a run.
    fn stolen(report: &Value, above: &str) -> Vec<String> {
        let members = report.as_object().into_iter().flatten();
        let places = members.flat_map(|(name, value)| {
            let place = format!("{above}{name}");
            if name == "stolen_cores" {
                vec![place]
            } else {
                stolen(value, &format!("{place}."))
            }
        });
        places.collect()
    }

    /// A number that is compared with another one says as little if they were stolen from that one's run.
    #[test]
    fn cores_are_stolen_from_no_run_that_a_bound_is_about_or_a_rate_follows_from() {
        let text = include_str!("../../sla.toml");
        let run = || report(|_, _| ());
        let sections: Table = text.parse().unwrap();
        for name in sections.keys() {
            let sample = match name.as_str() {
                "overload" | "soak" => serde_json::to_value(report::tests::overloaded()),
                "fairness" | "neighbours" => {
                    serde_json::to_value(Fairness::of(&run(), 1.0, run(), run(), run()))
                }
                _ => serde_json::to_value(run()),
            };
            let mut expected = stolen(&sample.unwrap(), "");
            // No bound is about the flood, which goes on around what is measured beside it.
            expected.retain(|place| !place.starts_with("flood."));
            let Sla(bounds) = Sla::parse(text, name).unwrap();
            let bounded = bounds.iter().filter(|bound| bound.max.is_some());
            let mut found: Vec<_> = bounded.map(|bound| bound.path.join(".")).collect();
            found.retain(|place| place.ends_with("stolen_cores"));
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn nobody_is_shed_but_where_that_is_what_the_run_is_about() {
        let text = include_str!("../../sla.toml");
        let about = [
            Profile::Overload,
            Profile::Fairness,
            Profile::Neighbours,
            Profile::Budgets,
        ];
        let others = Profile::value_variants().iter();
        let others = others.filter(|profile| !about.contains(profile));
        let report = report::tests::overloaded();
        for name in others
            .map(|profile| profile.name())
            .chain(["postgres".to_owned(), "slow-disk".to_owned()])
        {
            let misses = Sla::parse(text, &name).unwrap().misses(&report).unwrap();
            let expected = "`shed` is 1, and has to be 0 or less".to_owned();
            assert!(misses.contains(&expected), "{name}: {misses:?}");
        }
    }

    #[test]
    fn a_file_that_bounds_nothing_is_refused() {
        for (text, expected) in [
            (
                "[heavy]\nper_second = { min = 1 }",
                "there are no bounds for `light`",
            ),
            ("[light]", "there are no bounds for `light`"),
            ("light = 1", "`light` is not a table"),
            (
                "[light]\nper_second = 1",
                "`per_second` is not a bound: give it a `min` or a `max`",
            ),
            ("[light]\nper_second = {}", "`per_second` has no bound"),
            (
                "[light]\nper_second = { min = 1, most = 2 }",
                "`per_second` has `most` beside its bounds",
            ),
            (
                "[light]\nper_second = { min = \"1\" }",
                "`per_second.min` is not a number",
            ),
            ("[light", "not TOML"),
        ] {
            assert_eq!(
                Sla::parse(text, "light").unwrap_err().to_string(),
                expected,
                "{text}"
            );
        }
    }
}
