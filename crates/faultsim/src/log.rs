//! Events of daemons at simulated machines, printed with the time of the simulation.

use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tutti_node::simulated::{is_loud, machine, say};

/// From now on they are printed where the simulation of the thread is loud.
pub(super) fn begin() {
    // Only the first has an effect.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Printed));
}

struct Printed;

impl<S: Subscriber> Layer<S> for Printed {
    /// Threads differ, and a thread is not always loud.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>, _: Context<'_, S>) -> bool {
        is_loud()
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(here) = machine::here() else { return };
        let mut line = Line::default();
        event.record(&mut line);
        say(machine::now(), format_args!("n{here}: {}{}", line.text, line.fields));
    }
}

#[derive(Default)]
struct Line {
    text: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
