//! Bytes become a plan: endpoints, programs, and what the network does to their packets, held against the model
//! of what RDMA promises (`tools/model`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use uroce_model::{Plan, run};

fuzz_target!(|bytes: &[u8]| {
    let plan = Plan::from_bytes(bytes);
    if let Some(error) = run(&plan, false).error {
        panic!("{error}\n{}", serde_json::to_string_pretty(&plan).unwrap());
    }
});
