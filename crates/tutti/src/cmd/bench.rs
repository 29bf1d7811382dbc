//! `tutti bench`.

use crate::exit::Exit;
use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {}

pub(crate) fn execute(_args: BenchArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
