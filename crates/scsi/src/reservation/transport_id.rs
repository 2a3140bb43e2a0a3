//! iSCSI TransportIDs (SPC-4 §7.6.4.6).
