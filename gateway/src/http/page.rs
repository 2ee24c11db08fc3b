//! Pages of a list: `?limit=` and `&cursor=` in, `items` and `next_cursor` out.
//!
//! A cursor is the key of the last item, so a page is stable while things are added and removed. A page has a bound in
//! bytes, too: where items are large there are fewer. What an admin registers may be large; a list of that is made as
//! it is written, so that a long page takes no worker (`writing`).

use super::refusal::{Code, Refusal};
use super::writing::{self, Text, Writer};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use store::{Part, Room};

/// Items on a page when the caller does not say.
pub(crate) const LIMIT_DEFAULT: usize = 50;
/// The most items on a page.
pub(crate) const LIMIT_MAX: usize = 500;

/// What a caller says about the page it wants.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// As it was written, so that whatever is no limit is refused in the same words.
    pub(super) limit: Option<String>,
    pub(super) cursor: Option<String>,
}

/// One page.
#[derive(Debug, Serialize)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins; `null` on the last one.
    pub next_cursor: Option<String>,
}

impl PageQuery {
    /// How many items the caller wants.
    pub fn limit(&self) -> Result<usize, Refusal> {
        let limit = self.limit.as_deref();
        match limit.map_or(Ok(LIMIT_DEFAULT), str::parse::<usize>) {
            Ok(limit @ 1..=LIMIT_MAX) => Ok(limit),
            _ => Err(Refusal::new(
                Code::InvalidParameter,
                format!("`limit` is a number from 1 to {LIMIT_MAX}"),
            )),
        }
    }

    /// The key after which the page begins.
    pub fn after<K: std::str::FromStr>(&self) -> Result<Option<K>, Refusal> {
        let Some(cursor) = &self.cursor else {
            return Ok(None);
        };
        cursor.parse().map(Some).map_err(|_| no_cursor())
    }
}

/// The refusal of a cursor that no page of this list has named.
pub fn no_cursor() -> Refusal {
    Refusal::new(
        Code::InvalidParameter,
        "`cursor` is not the `next_cursor` of a page of this list",
    )
}

/// How many items are looked for: one more than the page holds tells whether there is a next one.
pub fn one_more(limit: usize) -> u32 {
    u32::try_from(limit + 1).unwrap_or(u32::MAX)
}

/// One page of items that may be large. Nothing is made of them before they are written.
pub struct LargePage(Box<Writer>);

impl LargePage {
    /// The page whose items this writes, by [`write_items`]. It says where the next page begins.
    pub fn new(items: impl Fn(&mut Text) -> io::Result<Option<String>> + Send + Sync + 'static) -> Self {
        Self(Box::new(move |text: &mut Text| {
            text.write_all(br#"{"items":["#)?;
            let next_cursor = items(text)?;
            text.write_all(br#"],"next_cursor":"#)?;
            serde_json::to_writer(&mut *text, &next_cursor)?;
            text.write_all(b"}")
        }))
    }
}

impl IntoResponse for LargePage {
    fn into_response(self) -> Response {
        writing::response(self.0)
    }
}

/// Writes the items that these begin, up to the one with which they come to [`store::BYTES_AT_ONCE`], and says where the
/// next page begins. `items` may go on behind them: then there is a next one.
pub fn write_items<S, T: Serialize>(
    text: &mut Text,
    items: impl Iterator<Item = S>,
    limit: usize,
    key: impl Fn(&S) -> String,
    view: impl Fn(S) -> T,
) -> io::Result<Option<String>> {
    let (mut sources, mut room) = (items.peekable(), Room::default());
    let (mut count, mut next_cursor) = (0, None);
    while count < limit
        && room.is_left()
        && let Some(source) = sources.next()
    {
        next_cursor = sources.peek().is_some().then(|| key(&source));
        if count > 0 {
            text.write_all(b",")?;
        }
        let begin = text.written();
        serde_json::to_writer(&mut *text, &view(source))?;
        room.take(text.written() - begin);
        count += 1;
    }
    Ok(next_cursor)
}

impl<T> Page<T> {
    /// The page of a list in which nothing is.
    pub const fn empty() -> Self {
        Self {
            items: Vec::new(),
            next_cursor: None,
        }
    }

    /// The page that these small items begin. `items` may hold one more than the page: then there is a next one.
    pub fn of<S>(
        items: impl Iterator<Item = S>,
        limit: usize,
        key: impl Fn(&S) -> String,
        view: impl Fn(S) -> T,
    ) -> Self {
        let mut sources: Vec<S> = items.take(limit + 1).collect();
        let more = sources.len() > limit;
        sources.truncate(limit);
        let next_cursor = if more { sources.last().map(key) } else { None };
        Self {
            items: sources.into_iter().map(view).collect(),
            next_cursor,
        }
    }

    /// The page that a part of a list begins. One that is not full can go on all the same.
    pub fn of_part<S, Id: ToString>(
        part: Part<S, Id>,
        limit: usize,
        key: impl Fn(&S) -> Id,
        view: impl Fn(S) -> T,
    ) -> Self {
        let key = |source: &S| key(source).to_string();
        let page = Self::of(part.found.into_iter(), limit, key, view);
        Self {
            next_cursor: page.next_cursor.or(part.next.map(|id| id.to_string())),
            ..page
        }
    }
}

#[cfg(test)]
impl LargePage {
    /// What is written of it.
    pub(crate) fn to_json(&self) -> String {
        String::from_utf8(Text::whole(&self.0)).expect("JSON is UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of texts, as it is read.
    #[derive(Deserialize)]
    struct Listed {
        items: Vec<String>,
        next_cursor: Option<String>,
    }

    fn page(after: u32, limit: usize) -> Page<u32> {
        Page::of((after + 1)..=5, limit, ToString::to_string, |item| item)
    }

    #[test]
    fn the_last_page_has_no_cursor() {
        assert_eq!(page(0, 3).items, [1, 2, 3]);
        assert_eq!(page(0, 3).next_cursor.as_deref(), Some("3"));
        assert_eq!(page(3, 3).items, [4, 5]);
        assert_eq!(page(3, 3).next_cursor, None);
        assert_eq!(page(0, 5).next_cursor, None);
    }

    #[test]
    fn a_page_ends_with_the_item_that_takes_the_last_of_its_room_however_large_that_is() {
        let page = |sizes: &[usize], limit| {
            let sizes = sizes.to_vec();
            let page = LargePage::new(move |text| {
                let items = sizes.iter().copied().enumerate();
                let key = |(place, _): &(usize, usize)| place.to_string();
                write_items(text, items, limit, key, |(_, size)| "x".repeat(size))
            });
            let page: Listed = serde_json::from_str(&page.to_json()).unwrap();
            (page.items.len(), page.next_cursor)
        };
        let most = store::BYTES_AT_ONCE;
        assert_eq!(page(&[most, 1], 9), (1, Some("0".to_owned())));
        assert_eq!(page(&[1, most, 1], 9), (2, Some("1".to_owned())));
        assert_eq!(page(&[1, most], 9), (2, None));
        assert_eq!(page(&[1, 1, 1], 2), (2, Some("1".to_owned())));
        assert_eq!(page(&[1, 1], 2), (2, None));
        assert_eq!(page(&[], 2), (0, None));
    }

    #[test]
    fn a_page_that_is_not_full_goes_on_where_its_part_says() {
        let page = |found: &[u32], next| {
            let part = Part {
                found: found.to_vec(),
                next,
            };
            Page::of_part(part, 2, |item| *item, |item| item)
        };
        let shown = |page: Page<u32>| (page.items, page.next_cursor);
        assert_eq!(shown(page(&[9], Some(3))), (vec![9], Some("3".to_owned())));
        assert_eq!(shown(page(&[], Some(3))), (vec![], Some("3".to_owned())));
        assert_eq!(shown(page(&[9, 8], None)), (vec![9, 8], None));
        // One more was looked for than is shown.
        let more = page(&[9, 8, 7], Some(7));
        assert_eq!(shown(more), (vec![9, 8], Some("8".to_owned())));
    }

    #[test]
    fn whatever_is_no_limit_is_refused_in_the_same_words() {
        let limit = |text: &str| {
            let query = PageQuery {
                limit: Some(text.to_owned()),
                cursor: None,
            };
            query.limit()
        };
        assert_eq!(PageQuery::default().limit().unwrap(), 50);
        assert_eq!(limit("1").unwrap(), 1);
        assert_eq!(limit("500").unwrap(), 500);
        for wrong in ["", "0", "501", "99999999999999999999", "-1", "abc"] {
            let refusal = limit(wrong).unwrap_err();
            assert_eq!(refusal.code(), Code::InvalidParameter);
            assert_eq!(refusal.detail(), "`limit` is a number from 1 to 500", "{wrong}");
        }
    }
}
