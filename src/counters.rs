//! Named counters: those of the kernel's rxe (`drivers/infiniband/sw/rxe/rxe_hw_counters.h`) under its names, and ours.

/// Declares the counters once: the field, its documentation and its name for listing.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What an endpoint or a queue pair counted since it was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// Adds all of `other`.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

counters! {
    /// Packets sent.
    sent_pkts,
    /// Packets received and accepted by a queue pair's checks.
    rcvd_pkts,
    /// Requests received again: acknowledged or answered again, not executed again.
    duplicate_request,
    /// Requests received with a PSN ahead of the expected one.
    out_of_seq_request,
    /// RNR NAKs received.
    rcvd_rnr_err,
    /// RNR NAKs sent.
    send_rnr_err,
    /// PSN sequence NAKs received.
    rcvd_seq_err,
    /// PSN sequence NAKs sent.
    send_seq_err,
    /// Acknowledges saved because a later one stood for them.
    ack_deferred,
    /// Requests that failed for exceeded `retry_cnt`.
    retry_exceeded_err,
    /// Requests that failed for exceeded `rnr_retry`.
    retry_rnr_exceeded_err,
    /// Times the requester went back to an earlier PSN, for whatever reason but RNR.
    completer_retry_err,
    /// Requests refused with an invalid-request, remote-access or remote-operational NAK.
    send_fatal_nak,
    /// Such NAKs received.
    rcvd_fatal_nak,
    /// Ack timeouts that fired.
    ack_timeouts,
    /// Tail probes sent.
    tail_probes,
    /// Packets sent again, probes included.
    retransmitted_pkts,
    /// Times a gap in READ or ATOMIC responses was taken for a NAK.
    implied_nak,
    /// Responses and acknowledges for what was acknowledged already, or was never sent.
    stale_responses,
    /// Dropped: shorter than its headers, an unknown opcode, a forged pad.
    malformed,
    /// Dropped: no such queue pair, or one that does not accept packets in its state.
    no_queue_pair,
    /// Dropped: the opcode's transport is not the queue pair's.
    wrong_transport,
    /// Dropped: not from the address that the queue pair is connected to, or not to ours.
    wrong_address,
    /// Dropped: the P_Key does not match.
    bad_pkey,
    /// Dropped: the Q_Key does not match.
    bad_qkey,
    /// UC and UD messages dropped, each counted once: packets of it missing or out of order, no receive request or one too
    /// small, or memory that may not be touched.
    dropped_messages,
    /// Dropped: an answer to a duplicate READ or ATOMIC that the replay store no longer holds.
    replay_missing,
}
