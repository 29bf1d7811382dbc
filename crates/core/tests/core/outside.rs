//! A policy outside: what it may order, and what the built-in policy promised before.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, Order, OrderRefusal, RowChoice};
use tutti_types::{JobId, JobSpec, Nanos};

fn of(processors: u32, seconds: u64) -> JobSpec {
    let (time_limit, grace) = (Some(Nanos::from_secs(seconds)), Nanos::ZERO);
    JobSpec { time_limit, grace, ..job(processors) }
}

const fn start(job: JobId) -> Order {
    Order::Start { job, row: RowChoice::Any, places: Vec::new() }
}

#[test]
fn an_order_can_not_delay_a_start_that_was_promised() {
    for discipline in ["easy", "sjbf", "conservative"] {
        let mut params = params(&[("rows", 1)]);
        params.choose("policy", "external").unwrap();
        params.choose("discipline", discipline).unwrap();
        let mut c = Cluster::new(params);
        c.join(0, 3);
        let runs = c.submit(of(2, 60));
        let wide = c.submit(of(3, 60));
        c.event(Event::PolicyInCharge { on: true });
        let (long, short) = (c.submit(of(1, 100)), c.submit(of(1, 30)));
        let refused = c.core.check_order(&start(long));
        assert_eq!(refused, Err(OrderRefusal::Delays(long, wide)), "{discipline}");
        for order in [Order::Preempt { job: runs }, Order::Move { job: long, before: None }] {
            assert_eq!(c.core.check_order(&order), Err(OrderRefusal::Promised), "{discipline}");
        }
        c.order(start(long));
        c.order(start(short));
        assert!(c.core.parts(long).is_empty() && !c.core.parts(short).is_empty(), "{discipline}");
        c.advance_ms(30_000);
        c.finish(short);
        c.advance_ms(30_000);
        c.finish(runs);
        assert!(!c.core.parts(wide).is_empty(), "{discipline}: the promise is kept");
    }
}
