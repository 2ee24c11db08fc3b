//! The connections of a run: what each sends and when, and what it makes of the answer.
//!
//! In a closed loop a connection asks again as soon as it has its answer. In an open loop asks are due at fixed times,
//! whether the gateway is ready for them or not, and time counts from when an ask was due: an answer that keeps the
//! next ask waiting is paid for by that one too (what is called coordinated omission does not occur).

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use model::Verdict;
use serde::Deserialize;
use tokio::sync::Notify;

use super::{Course, message};
use crate::address::Address;
use crate::client::Decision;
use crate::http::{Connection, Format, Request};

/// How many of its asks a connection remembers, to send one of them again.
const REMEMBERED_MAX: usize = 32;

/// The shortest sleep between asks. Waking up for each of them at many thousands a second would take more of the
/// machine than sending them; what is sent later for it counts as late.
const SLEEP_MIN: Duration = Duration::from_micros(100);

/// When asks are due, where that is fixed: the next one for whichever connection is free.
pub(super) struct Timetable {
    per_second: f64,
    begin: Instant,
    end: Instant,
    /// How many were taken. Held by whoever waits for the next one.
    taken: tokio::sync::Mutex<u32>,
    alarms: mpsc::Sender<Instant>,
    alarm: Arc<Notify>,
}

impl Timetable {
    /// So many asks a second, from the beginning until the end. A thread of its own says when the next one is due if
    /// that is not yet, because the clock of the runtime is a millisecond wide. It has nothing to do while the
    /// generator is late.
    pub(super) fn start(per_second: f64, begin: Instant, end: Instant) -> Result<Self> {
        let (alarms, set) = mpsc::channel();
        let alarm = Arc::new(Notify::new());
        let rung = Arc::clone(&alarm);
        thread::Builder::new()
            .name("timetable".to_owned())
            .spawn(move || ring(&set, &rung))?;
        Ok(Self {
            per_second,
            begin,
            end,
            taken: tokio::sync::Mutex::new(0),
            alarms,
            alarm,
        })
    }

    /// When the next ask is due, as soon as it is; `None` if there is none.
    pub(super) async fn next(&self) -> Option<Instant> {
        let mut taken = self.taken.lock().await;
        let due = self.begin + Duration::from_secs_f64(f64::from(*taken) / self.per_second);
        if due >= self.end {
            return None;
        }
        if due > Instant::now() {
            self.alarms.send(due).ok()?;
            self.alarm.notified().await;
        }
        *taken += 1;
        Some(due)
    }
}

/// Rings once for each alarm that is set, when it is time.
fn ring(set: &mpsc::Receiver<Instant>, alarm: &Notify) {
    for due in set {
        let early = due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            thread::sleep(early.max(SLEEP_MIN));
        }
        alarm.notify_one();
    }
}

/// An ask that was answered, to be sent again.
#[derive(Clone, Copy)]
struct Sent {
    ask: usize,
    agent: usize,
    turn: usize,
    answer: u64,
}

/// One connection.
pub(super) struct Asker {
    course: Rc<Course>,
    number: usize,
    address: Address,
    sent: VecDeque<Sent>,
    random: u64,
    body: Vec<u8>,
}

impl Asker {
    pub(super) fn new(course: Rc<Course>, number: usize) -> Self {
        let address = course.addresses[number % course.addresses.len()].clone();
        Self {
            course,
            number,
            address,
            sent: VecDeque::with_capacity(REMEMBERED_MAX),
            random: number as u64,
            body: Vec::new(),
        }
    }

    /// Asks until the time is over, or as often as all connections together may. Agents and asks are taken in turn.
    pub(super) async fn run(mut self) -> Result<()> {
        let course = Rc::clone(&self.course);
        let mut connection = Connection::open(&self.address).await?;
        let mut turn = 0;
        while let Some(due) = course.next().await {
            course.tally.borrow_mut().waited(due, course.measured_from);
            let percent = self.draw() % 100;
            let again = if percent < u64::from(course.setting.repeats_percent) {
                self.pick()
            } else {
                None
            };
            let answered = if let Some(place) = again {
                self.repeat(&mut connection, due, place).await?
            } else {
                turn += 1;
                self.ask(&mut connection, due, turn - 1).await?
            };
            if !answered {
                course.tally.borrow_mut().failed(again.is_some());
                connection = Connection::open(&self.address).await?;
            }
        }
        Ok(())
    }

    /// Asks something under a new request id. False if the connection broke.
    async fn ask(&mut self, connection: &mut Connection, due: Instant, turn: usize) -> Result<bool> {
        let ask = (self.number + turn) % self.course.asks.len();
        // Another stride than that of the asks, so that every agent comes to send every kind of them.
        let agent = (2 * self.number + turn) % self.course.authorizations.len();
        let course = Rc::clone(&self.course);
        let Some((status, body)) = self.send(connection, ask, agent, turn).await else {
            return Ok(false);
        };
        let mut tally = course.tally.borrow_mut();
        if status != 200 {
            tally.refused(status, refusal_code(status, body));
            course.time(due, |took| tally.time_refusal(status, took));
            return Ok(true);
        }
        let verdict = verdict(course.setting.format, body).context("reading a decision")?;
        tally.decided(verdict, course.asks[ask].expected);
        course.time(due, |took| tally.time(took, Instant::now() <= course.end));
        if course.setting.repeats_percent > 0 {
            let answer = digest(body);
            self.remember(Sent {
                ask,
                agent,
                turn,
                answer,
            });
        }
        Ok(true)
    }

    /// Sends again what was answered already: the answer has to be the same, byte for byte. False if the connection broke.
    async fn repeat(&mut self, connection: &mut Connection, due: Instant, place: usize) -> Result<bool> {
        let Sent {
            ask,
            agent,
            turn,
            answer,
        } = self.sent[place];
        let course = Rc::clone(&self.course);
        let Some((status, body)) = self.send(connection, ask, agent, turn).await else {
            return Ok(false);
        };
        let mut tally = course.tally.borrow_mut();
        if status == 200 {
            tally.repeated(digest(body) == answer);
            course.time(due, |took| tally.time(took, Instant::now() <= course.end));
        } else {
            tally.refused_again(refusal_code(status, body));
            course.time(due, |took| tally.time_refusal(status, took));
        }
        Ok(true)
    }

    async fn send<'c>(
        &mut self,
        connection: &'c mut Connection,
        ask: usize,
        agent: usize,
        turn: usize,
    ) -> Option<(u16, &'c [u8])> {
        self.course.asks[ask].write(self.number, turn, &mut self.body);
        let format = self.course.setting.format;
        // Nearly all clients that ask in JSON accept anything and say so, and what is measured is the way of their asks.
        let accept = match format {
            Format::Json => "*/*",
            Format::MessagePack => format.media_type(),
        };
        let headers = [
            ("Authorization", &*self.course.authorizations[agent]),
            ("Accept", accept),
        ];
        let request = Request {
            method: "POST",
            path: "/v1/authorize",
            headers: &headers,
            format,
            body: &self.body,
        };
        let answer = connection.send(request).await.ok()?;
        Some((answer.status, answer.body))
    }

    fn remember(&mut self, sent: Sent) {
        if self.sent.len() == REMEMBERED_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back(sent);
    }

    /// One of those that are remembered.
    fn pick(&mut self) -> Option<usize> {
        let len = self.sent.len() as u64;
        let place = self.draw().checked_rem(len)?;
        usize::try_from(place).ok()
    }

    /// The next of a sequence of numbers that is the same in every run (splitmix64).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Whether two answers are the same is all that is asked of it.
fn digest(answer: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    answer.hash(&mut hasher);
    hasher.finish()
}

/// What was decided.
fn verdict(format: Format, body: &[u8]) -> Result<Verdict> {
    match format {
        Format::Json => {
            let decision: Decision = serde_json::from_slice(body)?;
            Ok(decision.decision)
        }
        Format::MessagePack => {
            let word = message::text(body, "decision").context("there is none in the message")?;
            Ok(serde_json::from_value(word.into())?)
        }
    }
}

/// The stable code of a refusal, or its status where something else than the gateway answered.
fn refusal_code(status: u16, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        code: String,
    }
    let named = serde_json::from_slice(body).map(|problem: Problem| problem.code);
    let named = named
        .ok()
        .or_else(|| message::text(body, "code").map(str::to_owned));
    named.unwrap_or_else(|| format!("status {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Setting, asks};
    use std::cell::{Cell, RefCell};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// What is sent for an ask.
    async fn sent_in(format: Format) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let now = Instant::now();
        let setting = Setting {
            format,
            ..Setting::default()
        };
        let course = Course {
            addresses: vec![listener.local_addr().unwrap().into()],
            authorizations: vec!["Bearer t".to_owned()],
            asks: asks::asks(1, setting.mix, format),
            setting,
            timetable: None,
            measured_from: now,
            end: now,
            begun: Cell::new(0),
            unsent: Cell::new(0),
            tally: RefCell::default(),
        };
        let mut asker = Asker::new(Rc::new(course), 0);
        let mut connection = Connection::open(&asker.address).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        // It is there before the ask, and as good as one after it.
        let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        let (status, _) = asker.send(&mut connection, 0, 0, 0).await.unwrap();
        assert_eq!(status, 503);
        let mut sent = vec![0; 4_096];
        let length = stream.read(&mut sent).await.unwrap();
        String::from_utf8_lossy(&sent[..length]).into_owned()
    }

    #[tokio::test]
    async fn an_ask_says_what_it_accepts_like_those_of_nearly_all_clients() {
        for (format, accepted) in [
            (Format::Json, "*/*"),
            (Format::MessagePack, "application/vnd.msgpack"),
        ] {
            let sent = sent_in(format).await;
            assert!(sent.contains(&format!("\r\nAccept: {accepted}\r\n")), "{sent}");
        }
    }

    #[test]
    fn a_refusal_is_named_by_its_code_and_by_its_status_without_one() {
        assert_eq!(
            refusal_code(429, br#"{"code":"rate_limited","status":429}"#),
            "rate_limited"
        );
        assert_eq!(refusal_code(503, b"\x81\xa4code\xa8too_busy"), "too_busy");
        assert_eq!(refusal_code(502, b"<html>"), "status 502");
    }

    #[tokio::test]
    async fn a_timetable_has_every_time_whoever_is_late() {
        let begin = Instant::now();
        let end = begin + Duration::from_millis(50);
        let timetable = Timetable::start(1_000.0, begin, end).unwrap();
        // Nobody takes any before the end.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut times = Vec::new();
        while let Some(due) = timetable.next().await {
            times.push(due);
        }
        assert_eq!(times.len(), 50);
        assert!(
            times
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= Duration::from_micros(999))
        );
        assert!(times.iter().all(|due| *due < end));
    }
}
