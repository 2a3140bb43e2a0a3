//! Log Page Identifiers (LID).

pub(super) const LOG_SUPPORTED: u8 = 0x00;
pub(super) const LOG_ERROR: u8 = 0x01;
pub(super) const LOG_HEALTH: u8 = 0x02;
pub(super) const LOG_FIRMWARE: u8 = 0x03;
pub(super) const LOG_CHANGED_NAMESPACES: u8 = 0x04;
pub(super) const LOG_COMMAND_EFFECTS: u8 = 0x05;
pub(super) const LOG_ANA: u8 = 0x0c;
pub(super) const LOG_FEATURE_EFFECTS: u8 = 0x12;
pub(super) const LOG_MANAGEMENT_EFFECTS: u8 = 0x13;
pub(super) const LOG_DISCOVERY: u8 = 0x70;
pub(super) const LOG_RESERVATION: u8 = 0x80;
pub(super) const LOG_SANITIZE: u8 = 0x81;
