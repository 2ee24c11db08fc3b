//! Policies in the layout that Cedar's formatter gives them. Comments and meaning stay; where the formatter would drop a
//! comment, nothing is laid out.

use crate::diagnostics::{Diagnostic, Diagnostics, Place};
use crate::parse;
use crate::text::{self, comments};
use cedar_policy_formatter::{Config, policies_str_to_pretty};
use std::collections::BTreeMap;

/// The width of a line in the layout of Cedar's own tools.
const LINE_WIDTH: usize = 80;
/// The width of an indent in the layout of Cedar's own tools.
const INDENT_WIDTH: isize = 2;

/// The longest text that is laid out, in bytes. Cedar's formatter takes time with the square of the length of a set.
pub const FORMAT_BYTES_MAX: usize = 64 << 10;
/// The stack that laying out takes at most, in bytes. Cedar's formatter recurses over the length of sets, records and
/// comments, which `text` does not bound. The longest text of nothing but comments takes a quarter of this without
/// optimisation. It is address space, and becomes memory where it is used.
pub const FORMAT_STACK_BYTES: usize = 256 << 20;

/// This text of the policy with this name, laid out; or why it cannot be. Annotations are not looked at. It takes a
/// thread with a stack of [`FORMAT_STACK_BYTES`].
pub fn format(name: &str, text: &str) -> Result<String, Diagnostics> {
    check_length(text).map_err(|fault| fault.about(name))?;
    text::check_ifs(text).map_err(|fault| fault.about(name))?;
    parse::read(name, text)?;
    let config = Config {
        line_width: LINE_WIDTH,
        indent_width: INDENT_WIDTH,
    };
    let laid_out = policies_str_to_pretty(text, &config).map_err(|error| {
        let message = format!("the text cannot be laid out: {error}");
        Diagnostic::error(message).about(name)
    })?;
    check_comments(text, &laid_out).map_err(|fault| fault.about(name))?;
    Ok(laid_out)
}

fn check_length(text: &str) -> Result<(), Diagnostic> {
    if text.len() <= FORMAT_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "the text has {} bytes, and one that is laid out at most {FORMAT_BYTES_MAX}",
        text.len()
    );
    Err(Diagnostic::error(message).with_help("lay it out in parts, some policies at a time"))
}

/// Whether all comments of a text are there when it is laid out. Cedar's formatter does not look at a comma before a
/// closing bracket, and in a scope takes it for the bracket, and what is written beside it may be gone.
fn check_comments(text: &str, laid_out: &str) -> Result<(), Diagnostic> {
    let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, comment) in comments(laid_out) {
        *kept.entry(comment).or_default() += 1;
    }
    let lost = comments(text).find(|(_, comment)| match kept.get_mut(*comment) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
    let Some((at, comment)) = lost else {
        return Ok(());
    };
    let place = Place::of(text, at, comment.len());
    Err(Diagnostic::error("a comment would be lost")
        .with_help("move it; if it is at a comma before a closing bracket, take the comma out")
        .at(Some(place)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BasePolicies;
    use cedar_policy_core::ast::Expr;

    #[test]
    fn a_text_is_laid_out_and_keeps_its_comments() {
        let text = "// why\n@id(\"a\")permit(principal,action in [Action::\"read\"],resource)when{context.sensitive// so\n};\n// end";
        assert_eq!(
            format("mine", text).unwrap(),
            "// why\n@id(\"a\")\npermit (\n  principal,\n  action in [Action::\"read\"],\n  resource\n)\nwhen\n{\n  context.sensitive // so\n};\n// end\n"
        );
        assert_eq!(format("mine", "").unwrap(), "\n");
    }

    #[test]
    fn a_text_is_not_laid_out_where_a_comment_at_a_last_comma_would_be_lost() {
        let when = |condition: &str| format!("permit (principal, action, resource) when {{ {condition} }};");
        for text in [
            when("[1, 2, // so\n].contains(1)"),
            when("{a: 1, // so\n} == {a: 2}"),
            when("context.targets.contains(\"// a\", // so\n)"),
            "permit (principal, action, resource, \n// so\n);".to_owned(),
        ] {
            let Diagnostics(found) = format("mine", &text).unwrap_err();
            assert_eq!(
                (found.len(), &*found[0].message),
                (1, "a comment would be lost"),
                "{text}"
            );
            let (start, end) = found[0].place.unwrap().span();
            assert_eq!(
                (&text[start..end], found[0].policy.as_deref()),
                ("// so", Some("mine"))
            );
            // Without the last comma it stays, and so does what has no comment there.
            let comma = text.rfind(", ").unwrap();
            let without = format!("{}{}", &text[..comma], &text[comma + 1..]);
            assert!(format("mine", &without).unwrap().contains("// so"), "{text}");
            assert!(format("mine", &text.replace("// so", "")).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_laid_out_stays_and_means_the_same() {
        let once = format("base", BasePolicies::SHIPPED).unwrap();
        assert_eq!(format("base", &once).unwrap(), once);
        let (before, after) = (BasePolicies::shipped(), BasePolicies::parse(&once).unwrap());
        for (before, after) in before.policies.iter().zip(&*after.policies) {
            assert_eq!(before.statement.id, after.statement.id);
            assert_eq!(before.statement.annotations, after.statement.annotations);
            let same = |one: &Expr, other: &Expr| one.eq_shape(other);
            assert!(same(&before.template.condition(), &after.template.condition()));
        }
    }

    #[test]
    fn templates_are_laid_out_too() {
        let text = "@id(\"a\") permit (principal == ?principal, action, resource);";
        let laid_out = "@id(\"a\")\npermit (\n  principal == ?principal,\n  action,\n  resource\n);\n";
        assert_eq!(format("mine", text).unwrap(), laid_out);
    }

    #[test]
    fn the_longest_comments_fit_onto_the_stack() {
        let policy = "permit (principal, action, resource);";
        let count = (FORMAT_BYTES_MAX - policy.len()) / 3;
        let text = format!("{}{policy}", "//\n".repeat(count));
        let thread = std::thread::Builder::new().stack_size(FORMAT_STACK_BYTES);
        let thread =
            thread.spawn(move || format("long", &text).map(|laid_out| laid_out.matches("//").count()));
        assert_eq!(thread.unwrap().join().unwrap().unwrap(), count);
    }

    #[test]
    fn a_text_that_is_too_long_is_not_laid_out() {
        let Diagnostics(found) = format("mine", &" ".repeat(FORMAT_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(
            found[0].message,
            "the text has 65537 bytes, and one that is laid out at most 65536"
        );
        assert_eq!(found[0].policy.as_deref(), Some("mine"));
    }

    #[test]
    fn what_cannot_be_read_is_placed() {
        let Diagnostics(found) = format("mine", "permit (principal,\n action resource);").unwrap_err();
        assert_eq!(
            (found[0].policy.as_deref(), found[0].place.unwrap().line),
            (Some("mine"), 2)
        );
        let deep = format!(
            "permit (principal, action, resource) when {{ {} }};",
            "(".repeat(10_000)
        );
        let Diagnostics(found) = format("mine", &deep).unwrap_err();
        assert!(found[0].message.contains("nested"), "{found:?}");
    }
}
