//! A policy that is no part of the core: what the simulator asks of it.

use tutti_core::{Core, Event};
use tutti_types::ClusterTime;

/// A policy outside of the core, under `policy=external`. `tutti sim` has one that asks a program.
///
/// One in Rust, in a simulation that is a program of its own:
///
/// ```
/// use std::convert::Infallible;
/// use tutti_core::{Core, Event, Order, RowChoice};
/// use tutti_sim::{Job, Machine, Outside, Settings, Summary, run_with};
/// use tutti_types::{ClusterTime, Nanos, Params};
///
/// /// The narrowest jobs first.
/// #[derive(Default)]
/// struct Narrowest {
///     has_news: bool,
///     orders: Vec<Order>,
/// }
///
/// impl Outside for Narrowest {
///     fn note(&mut self, _: &Core, _: &Event) {
///         self.has_news = true;
///     }
///
///     fn due(&self, now: ClusterTime) -> ClusterTime {
///         if self.has_news { now } else { ClusterTime::NEVER }
///     }
///
///     fn ask(&mut self, core: &Core, _: ClusterTime) -> Result<(), String> {
///         self.has_news = false;
///         let mut line: Vec<_> = core.requests().filter_map(|job| core.request(job)).collect();
///         // The last is taken first.
///         line.sort_by_key(|request| std::cmp::Reverse((request.processors, request.job)));
///         let start =
///             |job| Order::Start { job, row: RowChoice::Any, places: Vec::new() };
///         self.orders = line.iter().map(|request| start(request.job)).collect();
///         Ok(())
///     }
///
///     fn next(&mut self, core: &Core, _: ClusterTime) -> Option<Event> {
///         if !core.outside_decides() {
///             return Some(Event::PolicyInCharge { on: true });
///         }
///         // The core checks each order; here those that can't be done are left for later.
///         while let Some(order) = self.orders.pop() {
///             if core.check_order(&order).is_ok() {
///                 return Some(Event::PolicyOrder { order });
///             }
///         }
///         None
///     }
/// }
///
/// let mut params = Params::default();
/// params.choose("policy", "external")?;
/// params.set("rows", 1)?;
/// let settings = Settings::new(Machine::new(1, 8)?, params);
/// let minute = Nanos::from_secs(60);
/// let job = |number, processors| {
///     Job { number, processors, run: minute, estimate: minute, ..Job::default() }
/// };
/// let workload = [job(1, 8), job(2, 8), job(3, 1)].map(Ok::<_, Infallible>);
/// let mut summary = Summary::new(8, None);
/// run_with(&settings, workload.into_iter(), &mut summary, Some(&mut Narrowest::default()))?;
/// let results = summary.results();
/// assert_eq!(results.jobs, 3);
/// // Job 3 starts at once; the wide ones have a minute each, one after the other.
/// assert_eq!(results.wait_s.mean, 60.0);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait Outside {
    /// The core has taken in an event.
    fn note(&mut self, core: &Core, event: &Event);

    /// When it wants to be asked next; a moment that has come: at once.
    fn due(&self, now: ClusterTime) -> ClusterTime;

    /// Asks it, and waits for its answer.
    ///
    /// # Errors
    /// Why it gives none; the simulation ends with that.
    fn ask(&mut self, core: &Core, now: ClusterTime) -> Result<(), String>;

    /// The next event that follows from its answer.
    fn next(&mut self, core: &Core, now: ClusterTime) -> Option<Event>;
}
