//! Where a job goes: which row it joins (packing), and which nodes it gets (placement). The core
//! decides by them.

use serde::{Deserialize, Serialize};

/// Which row a job joins (Feitelson: "Packing schemes for gang scheduling", 1996).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Packing {
    /// The oldest with room.
    #[default]
    FirstFit,
    /// The one with the least room that is enough.
    BestFit,
    /// The one with the smallest free block that is enough.
    Buddy,
}

impl Packing {
    /// All of them, as the parameter has them.
    pub const ALL: [Self; 3] = [Self::FirstFit, Self::BestFit, Self::Buddy];
}

/// Which nodes a job gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Placement {
    /// As few as possible.
    #[default]
    Packed,
    /// One after the other.
    RoundRobin,
    /// The least loaded.
    SpareCycles,
    /// The fastest, for one task each.
    LowLoad,
    /// The fastest, for as many tasks as are still faster there than elsewhere.
    HighLoad,
}

impl Placement {
    /// All of them, as the parameter has them.
    pub const ALL: [Self; 5] =
        [Self::Packed, Self::RoundRobin, Self::SpareCycles, Self::LowLoad, Self::HighLoad];

    /// Whether it matters how loaded nodes are.
    #[must_use]
    pub const fn goes_by_load(self) -> bool {
        match self {
            Self::Packed | Self::RoundRobin => false,
            Self::SpareCycles | Self::LowLoad | Self::HighLoad => true,
        }
    }
}
