//! Where the kernel and we are known to differ, and who is right.

use crate::common::guest::Kernel;

/// What either answers to a script.
pub(super) struct Difference {
    pub(super) script: &'static str,
    pub(super) uroce: &'static str,
    pub(super) v6_1: &'static str,
    pub(super) v6_12: &'static str,
    /// Who obeys, and which clause of the IBTA specification.
    pub(super) verdict: &'static str,
}

impl Difference {
    pub(super) fn of(script: &str) -> Option<&'static Self> {
        DIFFERENCES.iter().find(|difference| difference.script == script)
    }

    pub(super) fn kernel(&self, kernel: Kernel) -> &'static str {
        match kernel {
            Kernel::V6_1 => self.v6_1,
            Kernel::V6_12 => self.v6_12,
        }
    }
}

/// Scripts after which a kernel warns of itself in its log, once after each start.
pub(super) const WARNS: &[(Kernel, &str)] =
    &[(Kernel::V6_1, "READ refused in its middle"), (Kernel::V6_12, "READ answered as an ATOMIC")];

const DIFFERENCES: &[Difference] = &[
    Difference {
        script: "duplicate READ of its end",
        uroce: "READ_RESPONSE_FIRST 0 msn 1 1024B, READ_RESPONSE_MIDDLE 1 1024B, READ_RESPONSE_LAST 2 msn 1 452B, READ_RESPONSE_FIRST 1 msn 1 1024B, READ_RESPONSE_LAST 2 msn 1 452B, rts",
        v6_1: "READ_RESPONSE_FIRST 0 msn 1 1024B, READ_RESPONSE_MIDDLE 1 1024B, READ_RESPONSE_LAST 2 msn 1 452B, READ_RESPONSE_MIDDLE 1 1024B, READ_RESPONSE_LAST 2 msn 1 452B, rts",
        v6_12: "READ_RESPONSE_FIRST 0 msn 1 1024B, READ_RESPONSE_MIDDLE 1 1024B, READ_RESPONSE_LAST 2 msn 1 452B, READ_RESPONSE_MIDDLE 1 1024B, READ_RESPONSE_LAST 2 msn 1 452B, rts",
        verdict: "uroce: a READ request begins its answer with FIRST or ONLY, repeated or not (9.4.4)",
    },
    Difference {
        script: "a gap, and again a packet ahead",
        uroce: "NAK-SEQUENCE 0 msn 0, ACK 2 msn 3, rts",
        v6_1: "NAK-SEQUENCE 0 msn 0, ACK 0 msn 1, rts",
        v6_12: "NAK-SEQUENCE 0 msn 0, ACK 0 msn 1, rts",
        verdict: "both: uroce holds what came early and acknowledges it when its turn comes; the requester sees in-order execution (9.7.5.1)",
    },
    Difference {
        script: "a gap, closed, and another",
        uroce: "NAK-SEQUENCE 0 msn 0, ACK 1 msn 2, ACK 2 msn 3, rts",
        v6_1: "NAK-SEQUENCE 0 msn 0, ACK 0 msn 1, NAK-SEQUENCE 1 msn 1, rts",
        v6_12: "NAK-SEQUENCE 0 msn 0, ACK 0 msn 1, NAK-SEQUENCE 1 msn 1, rts",
        verdict: "both: as above, the gap was closed by what uroce held",
    },
    Difference {
        script: "packets behind a SEND without receive request",
        uroce: "RNR 0 msn 0, rts",
        v6_1: "RNR 0 msn 0, NAK-SEQUENCE 0 msn 0, rts",
        v6_12: "RNR 0 msn 0, NAK-SEQUENCE 0 msn 0, rts",
        verdict: "uroce: what follows an RNR NAK is dropped without a NAK of its own (9.7.5.2)",
    },
    Difference {
        script: "SEND longer than its receive",
        uroce: "NAK-INVALID 0 msn 0, wc 0: 1, err",
        v6_1: "NAK-OPERATIONAL 0 msn 0, wc 0: 2, err",
        v6_12: "NAK-OPERATIONAL 0 msn 0, wc 0: 2, err",
        verdict: "uroce: too long is an invalid request, and a local length error of the receive (9.9.3)",
    },
    Difference {
        script: "SEND of two packets, the second too long",
        uroce: "ACK 0 msn 0, NAK-INVALID 1 msn 0, wc 0: 1, err",
        v6_1: "ACK 0 msn 0, NAK-OPERATIONAL 1 msn 0, wc 0: 2, err",
        v6_12: "ACK 0 msn 0, NAK-OPERATIONAL 1 msn 0, wc 0: 2, err",
        verdict: "uroce: as above",
    },
    Difference {
        script: "SEND_ONLY within a SEND",
        uroce: "ACK 0 msn 0, NAK-INVALID 1 msn 0, wc 0: 5, err",
        v6_1: "ACK 0 msn 0, NAK-INVALID 1 msn 0, wc 0: 9, err",
        v6_12: "ACK 0 msn 0, NAK-INVALID 1 msn 0, wc 0: 9, err",
        verdict: "open: 9.9.3 fixes the NAK and the state; the receive that was being filled ends as flushed here, as a remote invalid request there",
    },
    Difference {
        script: "WRITE_MIDDLE within a SEND",
        uroce: "ACK 0 msn 0, NAK-INVALID 1 msn 0, wc 0: 5, err",
        v6_1: "ACK 0 msn 0, NAK-INVALID 1 msn 0, wc 0: 9, err",
        v6_12: "ACK 0 msn 0, NAK-INVALID 1 msn 0, wc 0: 9, err",
        verdict: "open: as above",
    },
    Difference {
        script: "SEND_FIRST shorter than the MTU",
        uroce: "NAK-INVALID 0 msn 0, wc 0: 5, err",
        v6_1: "ACK 0 msn 0, rts",
        v6_12: "NAK-INVALID 0 msn 0, wc 0: 9, err",
        verdict: "uroce, 6.12 but for the status of the receive: a FIRST is a full packet (9.7.4)",
    },
    Difference {
        script: "SEND_ONLY longer than the MTU",
        uroce: "NAK-INVALID 0 msn 0, wc 0: 5, err",
        v6_1: "ACK 0 msn 1, wc 0: 0, rts",
        v6_12: "NAK-INVALID 0 msn 0, wc 0: 9, err",
        verdict: "uroce, 6.12 but for the status of the receive: no packet is longer than the MTU (9.7.4)",
    },
    Difference {
        script: "SEND_LAST without payload",
        uroce: "ACK 0 msn 0, NAK-INVALID 1 msn 0, wc 0: 5, err",
        v6_1: "ACK 0 msn 0, ACK 1 msn 1, wc 0: 0, rts",
        v6_12: "ACK 0 msn 0, NAK-INVALID 1 msn 0, wc 0: 9, err",
        verdict: "uroce, 6.12 but for the status of the receive: a LAST carries at least one byte (9.7.4)",
    },
    Difference {
        script: "READ longer than 2^31",
        uroce: "NAK-INVALID 0 msn 0, err",
        v6_1: "NAK-ACCESS 0 msn 0, err",
        v6_12: "NAK-INVALID 0 msn 0, err",
        verdict: "uroce and 6.12: longer than any message is an invalid request (9.7.4)",
    },
    Difference {
        script: "WRITE longer than 2^31",
        uroce: "NAK-INVALID 0 msn 0, err",
        v6_1: "NAK-ACCESS 0 msn 0, err",
        v6_12: "NAK-INVALID 0 msn 0, err",
        verdict: "uroce and 6.12: as above",
    },
    Difference {
        script: "an acknowledge of what was not sent",
        uroce: "SEND_ONLY 0 8B, rts",
        v6_1: "SEND_ONLY 0 8B, wc 0: 0, rts",
        v6_12: "SEND_ONLY 0 8B, wc 0: 0, rts",
        verdict: "uroce: a PSN that was not sent acknowledges nothing (9.7.5.1)",
    },
    Difference {
        script: "sequence error",
        uroce: "WRITE_FIRST 0 of 2500 1024B, WRITE_MIDDLE 1 1024B, WRITE_LAST 2 452B, WRITE_MIDDLE 1 1024B, wc 0: 0, rts",
        v6_1: "WRITE_FIRST 0 of 2500 1024B, WRITE_MIDDLE 1 1024B, WRITE_LAST 2 452B, WRITE_MIDDLE 1 1024B, WRITE_LAST 2 452B, wc 0: 0, rts",
        v6_12: "WRITE_FIRST 0 of 2500 1024B, WRITE_MIDDLE 1 1024B, WRITE_LAST 2 452B, WRITE_MIDDLE 1 1024B, WRITE_LAST 2 452B, wc 0: 0, rts",
        verdict: "both: uroce sends the missing packet and goes on where the answer says; the kernel goes back N (9.7.5.2.4 allows either)",
    },
    Difference {
        script: "a syndrome of no meaning",
        uroce: "SEND_ONLY 0 8B, wc 0: 7, err",
        v6_1: "SEND_ONLY 0 8B, wc 0: 11, err",
        v6_12: "SEND_ONLY 0 8B, wc 0: 11, err",
        verdict: "uroce: a reserved syndrome is a bad response (9.9.2)",
    },
    Difference {
        script: "READ answered with too much",
        uroce: "READ_REQUEST 0 of 8, wc 0: 1, err",
        v6_1: "READ_REQUEST 0 of 8, wc 0: 4, err",
        v6_12: "READ_REQUEST 0 of 8, wc 0: 4, err",
        verdict: "uroce: a response of the wrong length is a local length error (9.9.2)",
    },
    Difference {
        script: "READ answered with too little",
        uroce: "READ_REQUEST 0 of 8, wc 0: 1, err",
        v6_1: "READ_REQUEST 0 of 8, rts",
        v6_12: "READ_REQUEST 0 of 8, rts",
        verdict: "uroce: as above; the kernel waits for the rest",
    },
    Difference {
        script: "READ refused in its middle",
        uroce: "READ_REQUEST 0 of 2500, wc 0: 10, err",
        v6_1: "READ_REQUEST 0 of 2500, wc 0: 0, err",
        v6_12: "READ_REQUEST 0 of 2500, wc 0: 10, err",
        verdict: "uroce and 6.12: the NAK fails the READ (9.9.2); 6.1 reports success, and warns of itself in its log",
    },
    Difference {
        script: "READ with its middle lost",
        uroce: "READ_REQUEST 0 of 2500, READ_REQUEST 1 of 1476, rts",
        v6_1: "READ_REQUEST 0 of 2500, rts",
        v6_12: "READ_REQUEST 0 of 2500, rts",
        verdict: "uroce: a gap in the answer is an implied NAK (9.7.5.2.4); the kernel waits for its timer, which is allowed",
    },
    Difference {
        script: "fetch-and-add acknowledged without an answer",
        uroce: "FETCH_ADD 0 by 1, FETCH_ADD 0 by 1, rts",
        v6_1: "FETCH_ADD 0 by 1, wc 0: 0, rts",
        v6_12: "FETCH_ADD 0 by 1, wc 0: 0, rts",
        verdict: "uroce: an acknowledge instead of the answer is an implied NAK (9.7.5.2.4); the kernel reports success without a value",
    },
    Difference {
        script: "READ answered as an ATOMIC",
        uroce: "READ_REQUEST 0 of 8, wc 0: 7, err",
        v6_1: "READ_REQUEST 0 of 8, wc 0: 0, err",
        v6_12: "READ_REQUEST 0 of 8, wc 0: 0, err",
        verdict: "uroce: a bad response (9.9.2); the kernel reports success, goes to ERR and warns of itself in its log",
    },
];
