//! `OutgoingUser` without `IncomingUser`.
//!
//! CHAP authenticates the initiator first, so the account by which the target proves itself has no effect without accounts
//! of initiators, and the server refuses it. SCST's tools add and remove both in any order. So here the account waits for
//! the first of the others, as long as the server runs.

use std::collections::BTreeMap;

use longshore_api::object::{DISCOVERY, Keys, ObjectId, ObjectKind};
use serde_json::Value;

pub use crate::state::target;

/// The setting that has the accounts of discovery.
#[must_use]
pub fn discovery() -> ObjectId {
    ObjectId {
        kind: ObjectKind::Setting,
        name: DISCOVERY.to_owned(),
    }
}

/// Accounts that wait, by the object that they are of.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    accounts: BTreeMap<ObjectId, Value>,
    changes: u64,
}

/// What becomes of accounts that wait: of each object of a change, the one that does from then on.
pub type Change = Vec<(ObjectId, Option<Value>)>;

impl Waiting {
    /// How often they have changed.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Has keys show the account that waits.
    pub fn show(&self, id: &ObjectId, keys: &mut Keys) {
        if let Some(account) = self.accounts.get(id).filter(|_| !has_accounts(keys)) {
            keys.insert("mutual".to_owned(), account.clone());
        }
    }

    /// Takes accounts that have to wait out of the objects of a change.
    #[must_use]
    pub fn take_out(objects: &mut [(ObjectId, Option<Keys>)]) -> Change {
        let has_any = |id: &ObjectId| id.kind == ObjectKind::Target || *id == discovery();
        let of = objects.iter_mut().filter(|(id, _)| has_any(id));
        of.map(|(id, keys)| {
            let account = match keys {
                Some(keys) if !has_accounts(keys) => keys.remove("mutual"),
                Some(_) | None => None,
            };
            // A setting without keys is none.
            if id.kind == ObjectKind::Setting && keys.as_ref().is_some_and(Keys::is_empty) {
                *keys = None;
            }
            (id.clone(), account)
        })
        .collect()
    }

    /// The change was made.
    pub fn put(&mut self, change: Change) {
        self.changes += 1;
        for (id, account) in change {
            match account {
                Some(account) => drop(self.accounts.insert(id, account)),
                None => drop(self.accounts.remove(&id)),
            }
        }
    }

    /// Forgets accounts of objects that are gone.
    pub fn retain(&mut self, is_there: impl Fn(&ObjectId) -> bool) {
        self.accounts.retain(|id, _| is_there(id));
    }
}

fn has_accounts(keys: &Keys) -> bool {
    let accounts = keys.get("accounts").and_then(Value::as_array);
    accounts.is_some_and(|accounts| !accounts.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(value: Value) -> Keys {
        match value {
            Value::Object(keys) => keys,
            _ => Keys::new(),
        }
    }

    #[test]
    fn an_account_waits_until_there_is_one_of_an_initiator() {
        let mut waiting = Waiting::default();
        let id = target("iqn.2026-11.com.example:a");
        let alone = keys(json!({"mutual": {"user": "us"}, "alias": "x"}));
        let mut objects = vec![(id.clone(), Some(alone.clone()))];
        waiting.put(Waiting::take_out(&mut objects));
        assert_eq!(objects[0].1, Some(keys(json!({"alias": "x"}))));
        let mut shown = keys(json!({"alias": "x"}));
        waiting.show(&id, &mut shown);
        assert_eq!(shown, alone);
        // With an account, it is in effect.
        let both = keys(json!({"mutual": {"user": "us"}, "accounts": [{"user": "a"}]}));
        let mut objects = vec![(id.clone(), Some(both.clone()))];
        waiting.put(Waiting::take_out(&mut objects));
        assert_eq!(objects[0].1, Some(both));
        let mut shown = Keys::new();
        waiting.show(&id, &mut shown);
        assert_eq!(shown, Keys::new());
    }

    #[test]
    fn a_setting_of_which_nothing_is_left_is_removed() {
        let alone = keys(json!({"mutual": {"user": "us"}}));
        let mut objects = vec![(discovery(), Some(alone))];
        let change = Waiting::take_out(&mut objects);
        assert_eq!(objects, [(discovery(), None)]);
        assert_eq!(change, [(discovery(), Some(json!({"user": "us"})))]);
    }
}
