//! What the text of a policy may be, checked before Cedar reads it.
//!
//! Cedar's parser and its evaluator recurse into expressions, and an expression that is deep enough overflows the stack
//! of the thread: the process is gone. Its validator notices, but passes what it did not get to the end of. So the depth is
//! bounded here, on the text. The bounds leave a stack of 2 MiB half empty without optimisation; a text far within them
//! is larger than anything that a person would want to read. Cedar's formatter also recurses over the length of a text:
//! it has bounds and a stack of its own, in `format`.
//!
//! Where something is wrong with a text, Cedar's parser goes on, to find more: it drops what does not fit and keeps what is
//! open. So what is counted is also an upper bound of what it makes of a text that is no policy.

use crate::diagnostics::{Diagnostic, Place};

/// The longest text of one named policy, in bytes.
pub const POLICY_BYTES_MAX: usize = 256 << 10;
/// How deep brackets of any kind may nest.
pub const NESTING_MAX: usize = 64;
/// How deep an expression may be as a tree: every operator of a chain such as `a || b || c` is a level.
pub const DEPTH_MAX: usize = 256;

/// Words that put an expression inside another one.
const OPERATORS: [&str; 4] = ["like", "has", "is", "in"];

/// The characters that end a comment in Cedar's grammar.
const LINE_ENDS: [char; 2] = ['\n', '\r'];

/// What is wrong with this text before anybody has read it.
pub(crate) fn check(text: &str) -> Result<(), Diagnostic> {
    if text.len() > POLICY_BYTES_MAX {
        let message = format!(
            "the text has {} bytes, and a policy at most {POLICY_BYTES_MAX}",
            text.len()
        );
        return Err(Diagnostic::error(message).with_help("split it into several named policies"));
    }
    Scan::new(text).run().map_err(|(what, at)| {
        let (message, help) = match what {
            Excess::Nesting => (
                format!("brackets are nested more than {NESTING_MAX} deep"),
                "take the condition apart into several policies",
            ),
            Excess::Depth => (
                format!("an expression is more than {DEPTH_MAX} operators deep"),
                "use a set and `contains`, or take the condition apart into several policies",
            ),
            Excess::Unpaired(found) => (
                format!("the `{found}` does not fit the brackets around it"),
                "close each bracket with one of its kind before the policy ends, and write records into conditions only",
            ),
        };
        let place = Place::of(text, at, 1);
        Diagnostic::error(message).with_help(help).at(Some(place))
    })
}

/// Which bound is exceeded.
#[derive(Debug, PartialEq, Eq)]
enum Excess {
    Nesting,
    Depth,
    /// What no valid policy has: Cedar would drop it and go on inside the bracket.
    Unpaired(char),
}

/// An upper bound of the depth of what has been read since a bracket was opened. Operators that bind more tightly are
/// below those that bind less tightly, so the deepest of each kind add up.
#[derive(Default, Clone, Copy)]
struct Level {
    /// The conditions of a policy: each holds all that follow.
    outer: usize,
    /// Every `if` since the bracket was opened, also before the last comma: where a comma does not fit, Cedar drops it, and
    /// what follows is inside the `if`.
    ifs: usize,
    or: usize,
    and: usize,
    and_max: usize,
    /// Operators that bind more tightly, since the last `&&`, `||` or comma.
    tight: usize,
    tight_max: usize,
    /// The deepest bracket.
    inner_max: usize,
    /// The deepest element before the last comma.
    elements_max: usize,
}

impl Level {
    fn depth(&self) -> usize {
        let here = self.outer
            + self.ifs
            + self.or
            + self.and.max(self.and_max)
            + self.tight.max(self.tight_max)
            + self.inner_max;
        here.max(self.elements_max)
    }

    fn end_term(&mut self) {
        self.tight_max = self.tight_max.max(self.tight);
        self.tight = 0;
    }

    fn end_element(&mut self) {
        *self = Self {
            ifs: self.ifs,
            elements_max: self.depth(),
            ..Self::default()
        };
    }

    fn operator(&mut self, token: &str) {
        match token {
            "||" => {
                self.end_term();
                self.and_max = self.and_max.max(self.and);
                self.and = 0;
                self.or += 1;
            }
            "&&" => {
                self.end_term();
                self.and += 1;
            }
            _ => self.tight += 1,
        }
    }
}

/// A bracket that is open, and what stands outside of it.
struct Open {
    bracket: u8,
    outside: Level,
}

struct Scan<'t> {
    text: &'t str,
    at: usize,
    open: Vec<Open>,
    /// The depth of all that is open: what is inside a bracket is below what is outside.
    below: usize,
    current: Level,
}

impl<'t> Scan<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            open: Vec::new(),
            below: 0,
            current: Level::default(),
        }
    }

    fn run(mut self) -> Result<(), (Excess, usize)> {
        while let Some(byte) = self.text.as_bytes().get(self.at).copied() {
            let start = self.at;
            match byte {
                b'"' => self.skip_string(),
                b'/' if self.text[start..].starts_with("//") => self.skip_line(),
                b'(' | b'[' | b'{' => self.open(byte)?,
                b')' | b']' | b'}' => self.close(byte)?,
                b',' => self.token(1, Level::end_element),
                b';' if !self.open.is_empty() => return Err(self.unpaired(byte)),
                b';' => self.token(1, |level| *level = Level::default()),
                byte if byte.is_ascii_alphabetic() || byte == b'_' => self.word(),
                byte if b"!-+*<>=&|.".contains(&byte) => self.symbol(),
                _ => self.at += 1,
            }
            if self.below + self.current.depth() > DEPTH_MAX {
                return Err((Excess::Depth, start));
            }
        }
        Ok(())
    }

    fn token(&mut self, length: usize, change: impl FnOnce(&mut Level)) {
        self.at += length;
        change(&mut self.current);
    }

    fn skip_string(&mut self) {
        let rest = &self.text.as_bytes()[self.at + 1..];
        let mut escaped = false;
        let end = rest.iter().position(|byte| {
            let is_end = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            is_end
        });
        self.at += end.map_or(rest.len(), |end| end + 1) + 1;
    }

    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.find(LINE_ENDS).unwrap_or(rest.len());
    }

    fn unpaired(&self, byte: u8) -> (Excess, usize) {
        (Excess::Unpaired(char::from(byte)), self.at)
    }

    fn open(&mut self, bracket: u8) -> Result<(), (Excess, usize)> {
        if self.open.len() == NESTING_MAX {
            return Err((Excess::Nesting, self.at));
        }
        // A record outside of all conditions is one that Cedar would not let `}` close.
        let is_of_a_scope = |outermost: &Open| outermost.bracket != b'{';
        if bracket == b'{' && self.open.first().is_some_and(is_of_a_scope) {
            return Err(self.unpaired(bracket));
        }
        // `a["b"]` looks into `a`, as `a.b` does.
        self.current.tight += 1;
        self.below += self.current.depth();
        let outside = std::mem::take(&mut self.current);
        self.open.push(Open { bracket, outside });
        self.at += 1;
        Ok(())
    }

    fn close(&mut self, byte: u8) -> Result<(), (Excess, usize)> {
        let opening = match byte {
            b')' => b'(',
            b']' => b'[',
            _ => b'{',
        };
        // INVARIANT: what Cedar's parser has open is open here. It drops what does not fit, and so this may have more.
        let closed = self.open.pop_if(|open| open.bracket == opening);
        let Some(Open { outside, .. }) = closed else {
            return Err(self.unpaired(byte));
        };
        self.at += 1;
        self.below -= outside.depth();
        let inside = std::mem::replace(&mut self.current, outside);
        self.current.inner_max = self.current.inner_max.max(inside.depth());
        Ok(())
    }

    fn word(&mut self) {
        let rest = &self.text[self.at..];
        let length = rest
            .find(|character: char| !character.is_ascii_alphanumeric() && character != '_')
            .unwrap_or(rest.len());
        let word = &rest[..length];
        self.token(length, |level| match word {
            "if" => {
                level.end_term();
                level.ifs += 1;
            }
            "when" | "unless" => {
                level.end_term();
                level.outer += 1;
            }
            word if OPERATORS.contains(&word) => level.operator(word),
            _ => {}
        });
    }

    fn symbol(&mut self) {
        let two = self.text.as_bytes().get(self.at..self.at + 2);
        let length = match two {
            Some(b"||" | b"&&" | b"==" | b"!=" | b"<=" | b">=") => 2,
            _ => 1,
        };
        let symbol = &self.text[self.at..self.at + length];
        self.token(length, |level| level.operator(symbol));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excess(condition: &str) -> Option<Excess> {
        let text = format!("permit (principal, action, resource) when {{ {condition} }};");
        Scan::new(&text).run().err().map(|(what, _)| what)
    }

    fn chain(term: &str, operator: &str, length: usize) -> String {
        vec![term; length].join(operator)
    }

    #[test]
    fn brackets_are_counted_and_not_those_in_strings_and_comments() {
        let nested =
            |open: &str, close: &str, depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        for (open, close) in [("(", ")"), ("[", "]"), ("{a: ", "}"), ("f(", ")")] {
            // One is taken by the condition itself.
            assert_eq!(excess(&nested(open, close, NESTING_MAX - 1)), None, "{open}");
            assert_eq!(
                excess(&nested(open, close, NESTING_MAX)),
                Some(Excess::Nesting),
                "{open}"
            );
        }
        let deep = "(".repeat(10_000);
        for end in ['\n', '\r'] {
            assert_eq!(
                excess(&format!("\"{deep}\" == \"\\\"{deep}\" // {deep}{end}")),
                None
            );
            assert_eq!(excess(&format!("// comment{end}{deep}")), Some(Excess::Nesting));
        }
        assert_eq!(excess(&format!("// comment\u{2028}{deep}\n")), None);
        assert_eq!(excess(&deep), Some(Excess::Nesting));
    }

    /// Cedar's parser would go on inside the brackets that are open, as deep as the text is long.
    #[test]
    fn what_cedar_would_drop_and_go_on_does_not_hide_what_is_open() {
        for (unfit, found) in [
            ("[),", ')'),
            ("(],", ']'),
            ("{a: ),", ')'),
            ("(;", ';'),
            ("a}}", '}'),
        ] {
            let repeated = unfit.repeat(10_000);
            assert_eq!(excess(&repeated), Some(Excess::Unpaired(found)), "{unfit}");
        }
        let scope = format!("permit (principal == {}", "{a}:".repeat(10_000));
        assert_eq!(
            check(&scope).unwrap_err().message,
            "the `{` does not fit the brackets around it"
        );
        for around in ["(", "[", "a[", "{", "{a: "] {
            let branches = "if a then b, else ".repeat(DEPTH_MAX + 1);
            assert_eq!(
                excess(&format!("{around}{branches}")),
                Some(Excess::Depth),
                "{around}"
            );
        }
        let choices = vec!["if a then b else c"; DEPTH_MAX / 2].join(", ");
        assert_eq!(excess(&format!("[{choices}].contains(d)")), None);
    }

    #[test]
    fn chains_are_as_deep_as_they_are_long() {
        for operator in [" && ", " || ", " + ", ".", " == ", " - ", "[b]."] {
            assert_eq!(excess(&chain("a", operator, DEPTH_MAX / 4)), None, "{operator}");
            assert_eq!(
                excess(&chain("a", operator, DEPTH_MAX + 1)),
                Some(Excess::Depth),
                "{operator}"
            );
        }
        for long in [
            format!("{} true", "if a then b else ".repeat(DEPTH_MAX + 1)),
            format!("a{}", "[\"b\"]".repeat(DEPTH_MAX + 1)),
            format!("true {}", "} when { true ".repeat(DEPTH_MAX + 1)),
            format!("{}a", "!".repeat(DEPTH_MAX + 1)),
        ] {
            assert_eq!(excess(&long), Some(Excess::Depth), "{long}");
        }
    }

    #[test]
    fn what_is_long_and_not_deep_is_fine() {
        let ids: Vec<_> = (0..10_000)
            .map(|number| format!("Resource::\"{number}\""))
            .collect();
        assert_eq!(excess(&format!("[{}].contains(resource)", ids.join(", "))), None);
        let terms: Vec<_> = (0..200)
            .map(|number| format!("context.input.number == {number} * 2 - 1"))
            .collect();
        assert_eq!(excess(&terms.join(" || ")), None);
        let one = format!(
            "permit (principal, action, resource) when {{ {} }};",
            chain("a", " && ", 200)
        );
        assert_eq!(check(&one.repeat(50)), Ok(()));
    }

    #[test]
    fn depth_outside_a_bracket_adds_to_that_inside() {
        let half = chain("a", " && ", DEPTH_MAX / 2);
        assert_eq!(excess(&half), None);
        assert_eq!(excess(&format!("{half} && ({half})")), Some(Excess::Depth));
        assert_eq!(excess(&format!("({half}) && {half}")), Some(Excess::Depth));
        assert_eq!(excess(&format!("f({half}, {half}, {half})")), None);
    }

    #[test]
    fn the_place_is_where_it_becomes_too_much() {
        let text = format!(
            "// ä\npermit (principal, action, resource) when {{ {} }};",
            "(".repeat(NESTING_MAX)
        );
        let found = check(&text).unwrap_err();
        let place = found.place.unwrap();
        assert_eq!((place.line, place.length), (2, 1));
        assert_eq!(text.as_bytes()[place.offset], b'(');
        let found = check(&" ".repeat(POLICY_BYTES_MAX + 1)).unwrap_err();
        assert!(found.message.contains("262145 bytes"), "{found}");
    }
}
