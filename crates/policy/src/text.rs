//! What the text of a policy may be, checked before Cedar reads it.
//!
//! Cedar's parser and its evaluator recurse into expressions, and an expression that is deep enough overflows the stack
//! of the thread: the process is gone. Its validator notices, but passes what it did not get to the end of. So the depth is
//! bounded here, on the text. The bounds leave a stack of 2 MiB half empty without optimisation; a text far within them
//! is larger than anything that a person would want to read. Cedar's formatter also recurses over the length of a text:
//! it has bounds and a stack of its own, in `format`.
//!
//! What is no escape in a string is told here as well: Cedar tells of each with a copy of the whole string, which comes to
//! the square of its length. And so is a `,`, `:` or `;` with nothing before it, of which Cedar makes an error for each byte.
//! Every other error of Cedar's takes two bytes at least, and is about as large as what it makes of an element of a set,
//! which takes as many.
//!
//! For each token that does not fit, Cedar's parser goes through every `if` that is open, and copies what is open around
//! it. So for new texts there is a bound for how much of one stands within how many of them. What is in force was read
//! before, and all of it fitted.
//!
//! Where something is wrong with a text, Cedar's parser goes on, to find more: it drops what does not fit and keeps what is
//! open. So what is counted is also an upper bound of what it makes of a text that is no policy.

use crate::diagnostics::{Diagnostic, Place};
use std::iter;

/// The longest text of one named policy, in bytes.
pub const POLICY_BYTES_MAX: usize = 256 << 10;
/// How deep brackets of any kind may nest.
pub const NESTING_MAX: usize = 64;
/// How deep an expression may be as a tree: every operator of a chain such as `a || b || c` is a level.
pub const DEPTH_MAX: usize = 256;
/// How many tokens may stand within `if`s, each counted as often as there are `if`s around it: a third of a second of
/// Cedar's, if all are wrong. A choice between 250 cases has room for 30 tokens in each.
const TOKENS_IN_IFS_MAX: usize = 1 << 20;

/// Words that put an expression inside another one.
const OPERATORS: [&str; 4] = ["like", "has", "is", "in"];

/// The characters that end a comment in Cedar's grammar.
const LINE_ENDS: [char; 2] = ['\n', '\r'];

/// What there is instead of a `\` that is no escape.
const ESCAPES: &str = r#"write `\\` for a `\`; the escapes are `\n`, `\r`, `\t`, `\0`, `\\`, `\'`, `\"`, `\x00` to `\x7f`, `\u{0}` to `\u{10ffff}`, and `\*` in a pattern of `like`"#;

/// What is wrong with this text before anybody has read it.
pub(crate) fn check(text: &str) -> Result<(), Diagnostic> {
    if text.len() > POLICY_BYTES_MAX {
        let message = format!(
            "the text has {} bytes, and a policy at most {POLICY_BYTES_MAX}",
            text.len()
        );
        return Err(Diagnostic::error(message).with_help("split it into several named policies"));
    }
    Scan::new(text).run().map_err(|excess| told(text, excess))
}

/// Why Cedar might take long to read this text, if something is wrong with it. What [`check`] tells is not told.
pub(crate) fn check_ifs(text: &str) -> Result<(), Diagnostic> {
    // No token is shorter than a byte.
    if text.len() <= TOKENS_IN_IFS_MAX / DEPTH_MAX {
        return Ok(());
    }
    let scan = Scan {
        in_ifs_max: TOKENS_IN_IFS_MAX,
        ..Scan::new(text)
    };
    match scan.run() {
        Err(excess @ (Excess::Ifs, _)) => Err(told(text, excess)),
        _ => Ok(()),
    }
}

/// What is wrong with this text at this place.
fn told(text: &str, (what, at): (Excess, usize)) -> Diagnostic {
    let (message, help) = match what {
        Excess::Nesting => (
            format!("brackets are nested more than {NESTING_MAX} deep"),
            "take the condition apart into several policies",
        ),
        Excess::Depth => (
            format!("an expression is more than {DEPTH_MAX} operators deep"),
            "use a set and `contains`, or take the condition apart into several policies",
        ),
        Excess::Ifs => (
            "too much of the text stands within too many `if`s".to_owned(),
            "take the condition apart into several policies",
        ),
        Excess::Unpaired(found) => (
            format!("the `{found}` does not fit the brackets around it"),
            "close each bracket with one of its kind before the policy ends, and write records into conditions only",
        ),
        Excess::Nothing(found) => (
            format!("there is nothing before the `{found}`"),
            "take it out, or write what belongs there",
        ),
        Excess::Escape => ("a string has a `\\` that begins no escape".to_owned(), ESCAPES),
        Excess::Star => (
            "a string that is no pattern has `\\*`".to_owned(),
            "write `*`, or `\\\\*` for a `\\` before it; only the pattern of a `like` has `\\*`",
        ),
        Excess::CarriageReturn => (
            "a string has a carriage return".to_owned(),
            "write `\\r` for it, or end the lines of the text with line feeds only",
        ),
    };
    let place = Place::of(text, at, 1);
    Diagnostic::error(message).with_help(help).at(Some(place))
}

/// Which bound is exceeded, or what there is that no valid policy has and that would cost Cedar much.
#[derive(Debug, PartialEq, Eq)]
enum Excess {
    Nesting,
    Depth,
    /// Cedar would go through all of them for each token.
    Ifs,
    /// Cedar would drop it and go on inside the bracket.
    Unpaired(char),
    /// Cedar would tell of each.
    Nothing(char),
    /// A `\` in a string that begins no escape.
    Escape,
    /// `\*` in a string that is no pattern.
    Star,
    /// A carriage return in a string.
    CarriageReturn,
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
    /// The token before this one; of a number the last digit, and of `::` the last `:`.
    last: &'t str,
    open: Vec<Open>,
    /// The depth of all that is open: what is inside a bracket is below what is outside.
    below: usize,
    current: Level,
    /// The `if`s of all that is open.
    ifs: usize,
    /// The tokens so far, each as often as there are `if`s around it.
    in_ifs: usize,
    /// How many those may be.
    in_ifs_max: usize,
}

impl<'t> Scan<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            last: "",
            open: Vec::new(),
            below: 0,
            current: Level::default(),
            ifs: 0,
            in_ifs: 0,
            in_ifs_max: usize::MAX,
        }
    }

    fn run(mut self) -> Result<(), (Excess, usize)> {
        loop {
            self.at = token_start(self.text, self.at);
            let start = self.at;
            let Some(character) = self.text[start..].chars().next() else {
                return Ok(());
            };
            let byte = self.text.as_bytes()[start];
            match byte {
                byte if self.ends_nothing(byte) => return Err((Excess::Nothing(character), start)),
                b'"' => self.string()?,
                b'(' | b'[' | b'{' => self.open(byte)?,
                b')' | b']' | b'}' => self.close(byte)?,
                b',' => self.token(1, Level::end_element),
                b';' if !self.open.is_empty() => return Err(self.unpaired(byte)),
                b';' => {
                    self.token(1, |level| *level = Level::default());
                    self.ifs = 0;
                }
                byte if byte.is_ascii_alphabetic() || byte == b'_' => self.word(),
                byte if b"!-+*<>=&|.".contains(&byte) => self.symbol(),
                _ => self.at += character.len_utf8(),
            }
            self.last = &self.text[start..self.at];
            if self.below + self.current.depth() > DEPTH_MAX {
                return Err((Excess::Depth, start));
            }
            self.in_ifs += self.ifs;
            if self.in_ifs > self.in_ifs_max {
                return Err((Excess::Ifs, start));
            }
        }
    }

    /// Whether this is a `,`, `:` or `;`, and there is nothing before it that it could end.
    fn ends_nothing(&self, byte: u8) -> bool {
        match byte {
            b';' => matches!(self.last, "" | ";"),
            b',' => matches!(self.last, "(" | "[" | "{" | "," | ":"),
            b':' => matches!(self.last, "(" | "[" | "{" | ","),
            _ => false,
        }
    }

    fn token(&mut self, length: usize, change: impl FnOnce(&mut Level)) {
        self.at += length;
        change(&mut self.current);
    }

    /// Goes over a string. One that does not end is Cedar's to tell: it is one error.
    fn string(&mut self) -> Result<(), (Excess, usize)> {
        self.at += 1;
        let mut star = None;
        loop {
            let rest = &self.text[self.at..];
            let Some(next) = rest.find(['"', '\\', '\r']) else {
                self.at = self.text.len();
                return Ok(());
            };
            self.at += next;
            let rest = &rest[next..];
            if rest.starts_with('"') {
                self.at += 1;
                break;
            }
            if rest.starts_with('\r') {
                return Err((Excess::CarriageReturn, self.at));
            }
            if rest.starts_with("\\*") {
                star = star.or(Some(self.at));
            }
            self.at += escape_length(rest).ok_or((Excess::Escape, self.at))?;
        }
        match star {
            Some(at) if !self.is_pattern() => Err((Excess::Star, at)),
            _ => Ok(()),
        }
    }

    /// Whether the string that has just ended is what stands behind a `like`, and not only the first part of it.
    fn is_pattern(&self) -> bool {
        let next = self.text.as_bytes().get(token_start(self.text, self.at));
        self.last == "like" && !next.is_some_and(|next| b"+-*/%.([".contains(next))
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
        self.ifs -= inside.ifs;
        Ok(())
    }

    fn word(&mut self) {
        let rest = &self.text[self.at..];
        let length = rest
            .find(|character: char| !character.is_ascii_alphanumeric() && character != '_')
            .unwrap_or(rest.len());
        let word = &rest[..length];
        self.ifs += usize::from(word == "if");
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

/// Where the next token begins that is not before this place: Cedar's grammar goes over white space and comments.
fn token_start(text: &str, mut at: usize) -> usize {
    loop {
        let rest = text[at..].trim_start();
        at = text.len() - rest.len();
        if !rest.starts_with("//") {
            return at;
        }
        at += rest.find(LINE_ENDS).unwrap_or(rest.len());
    }
}

/// The comments of a text that Cedar can read, without white space around them, and where each begins.
pub(crate) fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    iter::from_fn(move || {
        loop {
            at += text[at..].find(['"', '/'])?;
            let rest = &text[at..];
            if rest.starts_with("//") {
                let start = at;
                at += rest.find(LINE_ENDS).unwrap_or(rest.len());
                return Some((start, text[start..at].trim()));
            }
            at += if rest.starts_with('"') {
                string_length(rest)
            } else {
                1
            };
        }
    })
}

/// The length of the string that this text begins with, in bytes.
fn string_length(text: &str) -> usize {
    let mut at = 1;
    while let Some(next) = text[at..].find(['"', '\\']) {
        at += next;
        let rest = &text[at..];
        if rest.starts_with('"') {
            return at + 1;
        }
        at += escape_length(rest).unwrap_or(1);
    }
    text.len()
}

/// The length of the escape that begins with this `\`, in bytes; nothing if there is no such escape. Cedar has those of
/// Rust but for a line feed, and `\*` in patterns.
fn escape_length(text: &str) -> Option<usize> {
    match text.as_bytes().get(1)? {
        b'n' | b'r' | b't' | b'0' | b'\\' | b'\'' | b'"' | b'*' => Some(2),
        b'x' => match text.as_bytes().get(2..4)? {
            [b'0'..=b'7', low] if low.is_ascii_hexdigit() => Some(4),
            _ => None,
        },
        b'u' => {
            let (digits, _) = text[2..].strip_prefix('{')?.split_once('}')?;
            let number = digits.replace('_', "");
            let is_number = !digits.starts_with('_') && number.bytes().all(|digit| digit.is_ascii_hexdigit());
            if !is_number || number.len() > 6 {
                return None;
            }
            let character = u32::from_str_radix(&number, 16).ok().and_then(char::from_u32);
            character.map(|_| "\\u{}".len() + digits.len())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cedar_policy_core::parser;
    use proptest::prelude::*;

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
    fn comments_are_found_and_not_those_in_strings() {
        let text = "// a \"b\rpermit (principal, action, resource) //\u{2003}ä //\n\
                    when { \"// c \\\" // d\\\\\" == \"\" // e \"\n};//";
        let found: Vec<_> = comments(text).collect();
        let told: Vec<_> = found.iter().map(|(_, comment)| *comment).collect();
        assert_eq!(told, ["// a \"b", "//\u{2003}ä //", "// e \"", "//"]);
        for (at, comment) in found {
            assert!(text[at..].starts_with(comment));
        }
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

    /// Cedar would take seconds to find nothing more than the first of these.
    #[test]
    fn much_that_is_wrong_within_many_choices_is_refused_before_cedar_goes_through_it() {
        let of = |condition: &str| format!("permit (principal, action, resource) when {{ {condition} }};");
        let choices = "if a then b else ".repeat(DEPTH_MAX - 16);
        for around in ["", "(", "[a, ", "f("] {
            let wrong = of(&format!("{choices}{around}{}", "@".repeat(10_000)));
            let found = check_ifs(&wrong).unwrap_err();
            assert!(found.message.contains("too many `if`s"), "{found}");
            assert!(found.place.unwrap().offset > choices.len(), "{around}");
        }
        let cases: Vec<_> = (0..DEPTH_MAX - 16)
            .map(|number| format!("if context.input.kind == \"{number}\" then a.b else "))
            .collect();
        // What is closed again holds nothing.
        let closed = format!("[({choices}a), {}]", vec!["1"; 50_000].join(", "));
        for right in [
            of(&format!("{}false", cases.concat())),
            of(&closed),
            of(&choices).repeat(5),
        ] {
            assert_eq!((check(&right), check_ifs(&right)), (Ok(()), Ok(())));
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

    #[test]
    fn a_string_with_what_is_no_escape_is_refused_at_the_first_one() {
        for (wrong, what) in [
            ("\\q", Excess::Escape),
            ("\\é", Excess::Escape),
            ("\\x80", Excess::Escape),
            ("\\x7", Excess::Escape),
            ("\\u41", Excess::Escape),
            ("\\u{}", Excess::Escape),
            ("\\u{_1}", Excess::Escape),
            ("\\u{+1}", Excess::Escape),
            ("\\u{0000041}", Excess::Escape),
            ("\\u{110000}", Excess::Escape),
            ("\\u{d800}", Excess::Escape),
            ("\\\n", Excess::Escape),
            ("\\\r", Excess::Escape),
            ("\r", Excess::CarriageReturn),
            ("\\*", Excess::Star),
        ] {
            let found = excess(&format!("a == \"b{}\"", wrong.repeat(10_000)));
            assert_eq!(found, Some(what), "{wrong:?}");
        }
        let text = format!(
            "permit (principal, action, resource) when {{ a == \"{}\" }};",
            "\\q".repeat(131_000)
        );
        let found = check(&text).unwrap_err();
        assert_eq!(found.message, "a string has a `\\` that begins no escape");
        assert_eq!(Some(found.place.unwrap().offset), text.find('\\'));
        let right = r#"\n\r\t\0\\\'\"\x00\x7F\u{1}\u{1_0__}\u{00_00_41}\u{10ffff}"#;
        assert_eq!(
            excess(&format!("a == \"{right}\" && a like \"\\*{right}\"")),
            None
        );
    }

    #[test]
    fn strings_are_looked_at_wherever_they_stand() {
        for text in [
            r#"@id("\q") permit (principal, action, resource);"#,
            r#"permit (principal, action, resource == Resource::"\q");"#,
            r#"permit (principal, action, resource) when { {"\q": 1} == a };"#,
            r#"permit (principal, action, resource) when { a["\q"] };"#,
            r#"permit (principal, action, resource) when { a has "\q" };"#,
            r#"permit (principal, action, resource) when { a like "\q" };"#,
            r#"Agent::"\q""#,
        ] {
            let found = Scan::new(text).run();
            let at = text.find('\\').unwrap();
            assert_eq!(found, Err((Excess::Escape, at)), "{text}");
        }
        let comment = r#"// "\q"
            permit (principal, action, resource); // "\q"#;
        assert_eq!(check(comment), Ok(()));
    }

    /// Cedar reads it as a string everywhere else, and then it is no escape.
    #[test]
    fn only_a_pattern_has_escaped_stars() {
        let many = "\\*".repeat(10_000);
        for before in ["a like ", "a like", "a like // so\n", "like like\u{2003}"] {
            for after in [
                "",
                " && b",
                " // + b\n",
                "}; permit (principal, action, resource) when {a",
            ] {
                let condition = format!("{before}\"{many}\"{after}");
                assert_eq!(excess(&condition), None, "{before} {after}");
            }
        }
        for (before, after) in [
            ("a == ", ""),
            ("like::", ""),
            ("a like b::", ""),
            ("a like -", ""),
            ("a like (", ")"),
            ("like / ", ""),
            ("a like ", " + b"),
            ("a like ", "// so\n % 2"),
            ("a like ", ".b"),
            ("a like ", "[b]"),
            ("a like ", "(b)"),
            ("", " like \"a\""),
        ] {
            let condition = format!("{before}\"{many}\"{after}");
            assert_eq!(excess(&condition), Some(Excess::Star), "{before} {after}");
        }
    }

    /// Cedar would make an error of each.
    #[test]
    fn what_ends_nothing_is_refused_at_the_first_one() {
        for (wrong, found) in [
            ("[,", ','),
            ("[a, // so\n ,", ','),
            ("f(,", ','),
            ("{,", ','),
            ("{a: ,", ','),
            ("{:", ':'),
            ("{a: 1, :", ':'),
            ("a[::", ':'),
            ("(:", ':'),
        ] {
            assert_eq!(excess(wrong), Some(Excess::Nothing(found)), "{wrong}");
        }
        let policy = "permit (principal, action, resource,);";
        for (text, at) in [
            (";".repeat(POLICY_BYTES_MAX), 0),
            (format!("{policy} // so\n;"), policy.len() + " // so\n".len()),
            ("permit (, action, resource);".to_owned(), "permit (".len()),
        ] {
            let found = check(&text).unwrap_err();
            assert!(
                found.message.starts_with("there is nothing before the "),
                "{found}"
            );
            assert_eq!(found.place.unwrap().offset, at);
        }
        for right in [
            "[1,]",
            "f(1,)",
            "[]",
            "f()",
            "{}",
            "{a: 1,}",
            "{a: A::B::\"c\", \"b\": d}",
        ] {
            assert_eq!(excess(right), None, "{right}");
        }
        assert_eq!(check(&policy.repeat(2)), Ok(()));
    }

    /// What escapes are made of, and what ends a string.
    const PIECES: [&str; 22] = [
        "\\", "\\", "\\", "q", "x", "7", "8", "f", "u", "{", "}", "1", "d", "_", "*", "\"", "\r", "\n", "n",
        "'", "\\x7", "\\u{d",
    ];

    /// Where strings stand, with `$` for what is in one.
    const PLACES: [&str; 5] = [
        r#"permit (principal, action, resource) when { context.a == "$" };"#,
        r#"permit (principal, action, resource) when { context.a like "$" };"#,
        r#"permit (principal, action, resource) when { context.a like "$" + "\n" };"#,
        r#"permit (principal, action, resource == Resource::"$");"#,
        r#"@id("$") permit (principal, action, resource);"#,
    ];

    /// What expressions and policies are made of.
    const TOKENS: [&str; 18] = [
        "(", ")", "[", "]", "{", "}", ",", ",", ":", "::", ";", "context", "1", "if", "like", "\"b\"", "+",
        "// c\n",
    ];

    /// Where they stand, with `$` for them.
    const AROUND: [&str; 7] = [
        "$",
        "permit ($);",
        "permit (principal, action, resource $);",
        "permit (principal, action, resource) when { [$] };",
        "permit (principal, action, resource) when { {a: 1, $} };",
        "permit (principal, action, resource) when { context.f($) };",
        "permit (principal, action, resource) when { context == [1, $ 1] };",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn what_is_refused_is_refused_by_cedar(
            tokens in prop::collection::vec(prop::sample::select(&TOKENS[..]), 0..8),
            around in prop::sample::select(&AROUND[..]),
        ) {
            let text = around.replace('$', &tokens.join(" "));
            prop_assert!(check(&text).is_ok() || parser::parse_policyset(&text).is_err(), "{text}");
        }

        #[test]
        fn a_string_that_is_refused_is_refused_by_cedar_and_of_one_that_is_not_cedar_tells_no_escape(
            pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..8),
            place in prop::sample::select(&PLACES[..]),
        ) {
            let text = place.replace('$', &pieces.concat());
            let by_cedar = parser::parse_policyset(&text);
            if check(&text).is_err() {
                prop_assert!(by_cedar.is_err(), "{text}");
            } else if let Err(errors) = by_cedar {
                let mut told = errors.iter().map(ToString::to_string);
                prop_assert!(!told.any(|told| told.contains("not a valid escape")), "{text}");
            }
        }
    }
}
