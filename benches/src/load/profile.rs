//! Profiles: runs with a name, so that two of them on two days or machines are the same run.

use clap::ValueEnum;

use super::asks::Mix;
use super::report::Setting;

/// A run with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// 100 distinct asks, half of what is sent is a repeat.
    Light,
    /// 500 distinct asks, 70 in 100 are repeats.
    Medium,
    /// 1,000 distinct asks, 85 in 100 are repeats.
    Heavy,
    /// 64 connections, which ask again as soon as they have their answers, and nothing that is a repeat.
    Closed,
    /// One connection, which asks again as soon as it has its answer.
    OneCaller,
    /// 10,000 agents, 256 connections.
    ManyAgents,
    /// 1,000 asks of one agent, 50 at once: exactly as many are admitted as its bucket holds.
    OneAgent,
    /// 70 reads in 100, 25 changes that are allowed, and 5 denials.
    Mixed,
    /// 1,000 asks due in a second, for a minute.
    Calm,
    /// 10,000 asks due in a second, for a minute.
    Brisk,
    /// Twice as many asks due as there is capacity for, for a minute.
    Overload,
    /// Seven tenths of the capacity for half an hour.
    Soak,
    /// A tenant at a low rate, alone and beside one that asks for ten times its share: [`super::fairness`].
    Fairness,
    /// Nine tenants that keep to their shares, beside a tenth that does and then asks for ten times its own: [`super::fairness`].
    Neighbours,
    /// Each operation on budgets at one caller, then reservations made and committed on one budget: [`crate::budgets`].
    Budgets,
}

/// Connections enough that nothing waits for one where many asks are due, and that more ask at once than the gateway lets wait.
const MANY: usize = 2_048;
/// Asks of the quiet tenant that are due in a second.
const QUIET: f64 = 200.0;

impl Profile {
    /// Its name, as it is written on the command line and in a file of limits.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What it asks. That of budgets is no run of asks, and those of fairness and of neighbours are the quiet tenants'.
    pub fn setting(self) -> Setting {
        let all = Setting::default();
        match self {
            Self::Light => repeating(100, 50),
            Self::Medium => repeating(500, 70),
            Self::Heavy => repeating(1_000, 85),
            Self::OneCaller => Setting {
                connections: 1,
                ..all
            },
            Self::ManyAgents => Setting {
                connections: 256,
                agents: 10_000,
                ..all
            },
            Self::OneAgent => Setting {
                connections: 50,
                agents: 1,
                asks_max: Some(1_000),
                bucket: Some(400),
                ..all
            },
            Self::Mixed => Setting {
                mix: Mix::Mixed,
                ..all
            },
            Self::Calm => Setting {
                per_second: Some(1_000.0),
                ..all
            },
            Self::Brisk => Setting {
                connections: 1_024,
                per_second: Some(10_000.0),
                ..all
            },
            Self::Overload => Setting {
                connections: MANY,
                gives_up: true,
                ..all
            },
            Self::Soak => Setting {
                connections: 1_024,
                ..all
            },
            Self::Fairness => Setting {
                per_second: Some(QUIET),
                ..all
            },
            Self::Neighbours => Setting {
                connections: 512,
                ..all
            },
            Self::Closed | Self::Budgets => all,
        }
    }

    /// What the tenant that floods asks, where one does. Its rate is measured.
    pub fn flood(self) -> Setting {
        Setting {
            connections: MANY,
            ..Setting::default()
        }
    }

    /// For how many seconds.
    pub const fn seconds(self) -> f64 {
        match self {
            Self::Calm | Self::Brisk | Self::Overload => 60.0,
            Self::Soak => 1_800.0,
            Self::Fairness | Self::Neighbours => 20.0,
            _ => 10.0,
        }
    }

    /// How many times the capacity is asked for, where the rate follows from that.
    pub const fn times_capacity(self) -> Option<f64> {
        match self {
            Self::Overload => Some(2.0),
            Self::Soak => Some(0.7),
            _ => None,
        }
    }
}

fn repeating(distinct: usize, repeats_percent: u8) -> Setting {
    Setting {
        distinct,
        repeats_percent,
        ..Setting::default()
    }
}
