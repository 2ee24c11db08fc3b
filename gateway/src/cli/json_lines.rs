//! Log lines as JSON, with what caused an error. The library tells of the causes in plain lines only.

use serde_json::Value;
use std::error::Error;
use std::fmt;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

/// What stands in a line behind the last field of its event. No field has this in it: within a text, quotes are escaped.
const BEHIND_FIELDS: &str = r#"},"target":"#;

/// The lines of another formatter, with the causes of each error beside it, as they are called in plain lines: `error.sources`.
pub struct WithSources<F>(pub F);

impl<F, S, N> FormatEvent<S, N> for WithSources<F>
where
    F: FormatEvent<S, N>,
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut sources = Sources::default();
        event.record(&mut sources);
        if sources.members.is_empty() {
            return self.0.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        if let Some(end) = line.find(BEHIND_FIELDS) {
            line.insert_str(end, &sources.members);
        }
        writer.write_str(&line)
    }
}

/// The causes of the errors among the fields of an event.
#[derive(Default)]
struct Sources {
    /// Members of a JSON object, each with a comma before it.
    members: String,
}

impl Visit for Sources {
    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        let mut causes = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            causes.push(cause.to_string());
            source = cause.source();
        }
        if causes.is_empty() {
            return;
        }
        let name = format!("{}.sources", field.name());
        self.members.push(',');
        self.members.push_str(&Value::from(name).to_string());
        self.members.push(':');
        self.members.push_str(&Value::from(causes).to_string());
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn fmt::Debug) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs::{self, File};
    use store::StoreError;

    #[test]
    fn the_causes_of_an_error_stand_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let lines = tracing_subscriber::fmt()
            .json()
            .map_event_format(WithSources)
            .with_writer(File::create(&path).unwrap());
        tracing::subscriber::with_default(lines.finish(), || {
            let error = StoreError::Unavailable("a \"lock\"},\"target\":1".into());
            tracing::warn!(error = &error as &dyn Error, seq = 7, "it could not be read");
            let error = StoreError::Corrupt {
                what: "a row".to_owned(),
            };
            tracing::warn!(error = &error as &dyn Error, "it could not be read");
        });
        let log = fs::read_to_string(&path).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        let fields: Vec<_> = lines.iter().map(|line| &line["fields"]).collect();
        let with_cause = json!({
            "message": "it could not be read",
            "error": "the database is not available",
            "error.sources": ["a \"lock\"},\"target\":1"],
            "seq": 7,
        });
        let without = json!({
            "message": "it could not be read",
            "error": "the database holds something unreadable: a row",
        });
        assert_eq!(fields, [&with_cause, &without]);
        assert!(lines.iter().all(|line| line["target"].is_string()), "{log}");
    }
}
