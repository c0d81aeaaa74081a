//! What stands on what.

use std::any::Any;

use super::*;

#[test]
fn objects_of_two_contexts_do_not_mix() {
    let (a, b) = Side::pair();
    for config in [QpConfig::new(&b.cq, &a.cq), QpConfig::new(&a.cq, &b.cq)] {
        assert_eq!(a.pd.create_qp(&config).unwrap_err().errno(), 22);
    }
    assert_eq!(a.context.create_cq(1, Some(&b.channel)).unwrap_err().errno(), 22);
}

#[test]
fn objects_can_be_dropped_in_any_order() {
    const COUNT: usize = 6;
    for turn in 0..COUNT {
        for backwards in [false, true] {
            let Side { qp, cq, channel, region, pd, context } = Side::new();
            let mut objects: [Box<dyn Any>; COUNT] =
                [Box::new(qp), Box::new(cq), Box::new(channel), Box::new(region), Box::new(pd), Box::new(context)];
            objects.rotate_left(turn);
            if backwards {
                objects.reverse();
            }
            objects.into_iter().for_each(drop);
        }
    }
}

#[test]
fn a_queue_pair_works_on_when_the_handles_below_it_are_gone() {
    let (a, b) = Side::pair();
    let (Side { qp, cq, region, .. }, target) = (a, b.region.remote(0));
    region.write(0, b"still here").unwrap();
    qp.post_send([SendRequest::new(1, Operation::Write(target), &[region.sge(0, 10)])]).unwrap();
    while cq.poll_one().is_none() {}
    assert_eq!(b.bytes(0, 10), b"still here");
}
