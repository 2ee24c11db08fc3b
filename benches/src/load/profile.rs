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
    /// 10,000 agents, 256 connections.
    ManyAgents,
    /// 1,000 asks of one agent, 50 at once: exactly as many are admitted as its bucket holds.
    OneAgent,
    /// 70 reads in 100, 25 changes that are allowed, and 5 denials.
    Mixed,
    /// Each operation on budgets at one caller, then reservations made and committed on one budget: [`crate::budgets`].
    Budgets,
}

impl Profile {
    /// Its name, as it is written on the command line and in a file of limits.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What it asks. That of budgets is no run of asks.
    pub fn setting(self) -> Setting {
        let all = Setting::default();
        match self {
            Self::Light => repeating(100, 50),
            Self::Medium => repeating(500, 70),
            Self::Heavy => repeating(1_000, 85),
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
            Self::Budgets => all,
            Self::Mixed => Setting {
                mix: Mix::Mixed,
                ..all
            },
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
