//! What is said to a solver. It does whatever its input tells it to, reads files and writes them, too, so nothing that
//! a tenant has written may become a command.
//!
//! The library that writes formulas gives numbers in place of names, and escapes texts. But it tells what the numbers
//! stand for in comments, where the names of members stand as they were written, and only a line feed is taken out of
//! them: to some solvers a comment ends at a carriage return as well. So no comment is passed on. What is left is
//! printable ASCII. A line with anything else in it is not what the library means to write, and is refused.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// The input of a solver, line by line and without comments.
#[derive(Debug)]
pub(crate) struct Script<W> {
    output: W,
    place: Place,
}

/// Where in its text a script stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the begin of a line.
    Begin,
    /// In a line that is passed on.
    Line,
    /// In one that is not. The library begins a line for each comment, and a semicolon anywhere else is part of a text.
    Comment,
}

impl<W> Script<W> {
    pub(crate) const fn new(output: W) -> Self {
        Self {
            output,
            place: Place::Begin,
        }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Script<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let script = self.get_mut();
        let line = bytes.split_inclusive(|byte| *byte == b'\n').next();
        let line = line.unwrap_or_default();
        if script.place == Place::Begin && line.starts_with(b";") {
            script.place = Place::Comment;
        }
        let written = if script.place == Place::Comment {
            line.len()
        } else if line.iter().copied().all(is_printable) {
            ready!(Pin::new(&mut script.output).poll_write(cx, line))?
        } else {
            let error = io::Error::new(io::ErrorKind::InvalidData, "a formula has a byte that none has");
            return Poll::Ready(Err(error));
        };
        match line[..written].last() {
            Some(b'\n') => script.place = Place::Begin,
            Some(_) if script.place == Place::Begin => script.place = Place::Line,
            _ => {}
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().output).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().output).poll_shutdown(cx)
    }
}

/// Whether a formula may have it.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'\n' | b' '..=b'~')
}

#[cfg(test)]
mod tests {
    use super::*;
    use cedar_policy_symcc::SmtLibScript;
    use tokio::io::AsyncWriteExt;

    /// What would be commands, behind everything that anybody may take for the end of a line.
    const MEMBERS: &str =
        "{a, b\r(assert false)\r;, c\n(exit)\u{b}(exit)\u{c}(exit)\0(exit)\u{85}(exit)\u{2028}(exit)}";

    #[tokio::test]
    async fn a_solver_is_told_no_comment_whatever_is_in_it() {
        let mut script = Script::new(Vec::<u8>::new());
        script.comment(MEMBERS).await.unwrap();
        let two_lines = "(declare-datatype R0 (\n  (R0 (R0_a0 String))))\n";
        script.write_all(two_lines.as_bytes()).await.unwrap();
        script.comment("; one more").await.unwrap();
        script.assert("(= \"; no comment\" t0)").await.unwrap();
        script.check_sat().await.unwrap();
        let told = format!("{two_lines}(assert (= \"; no comment\" t0))\n(check-sat)\n");
        assert_eq!(String::from_utf8(script.output).unwrap(), told);
    }

    #[tokio::test]
    async fn it_makes_no_difference_in_how_many_pieces_a_script_is_written() {
        let text = "; a\r(exit)\r;\n(check-sat)\n\n;\n; b\n  (get-model)\n";
        for length in 1..=text.len() {
            let mut script = Script::new(Vec::<u8>::new());
            for piece in text.as_bytes().chunks(length) {
                script.write_all(piece).await.unwrap();
            }
            let told = String::from_utf8(script.output).unwrap();
            assert_eq!(told, "(check-sat)\n\n  (get-model)\n", "{length}");
        }
    }

    #[tokio::test]
    async fn a_line_with_what_no_formula_has_is_refused() {
        for byte in (0..=u8::MAX).filter(|byte| !matches!(byte, b'\n' | b' '..=b'~')) {
            let mut script = Script::new(Vec::<u8>::new());
            let refused = script.write_all(&[b'(', byte, b')', b'\n']).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{byte}");
            assert!(script.output.is_empty(), "{byte}");
        }
    }
}
