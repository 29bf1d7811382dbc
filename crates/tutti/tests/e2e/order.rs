//! Which job is next: users in turn, and their weights.

use crate::harness::{Instance, own_name};

#[test]
fn weights_are_listed_set_and_taken_back() {
    let instance = Instance::new().up();
    let weight = |words: &[&str]| instance.tutti(&[&["weight"], words].concat());
    assert_eq!(weight(&["--json"]).expect(0).json(), serde_json::json!([]));
    let own = own_name();
    weight(&[&format!("{own}=2"), "@0=1000"]).expect(0);
    let listed = weight(&["--json"]).expect(0).json();
    assert_eq!(listed[0], serde_json::json!({ "account": own, "weight": 2 }));
    assert_eq!(listed[1]["weight"], 1000);
    for wrong in ["0", "1001", "-1", "1.5", "much", ""] {
        weight(&[&format!("{own}={wrong}")]).expect(1).says("from 1 to 1000, or none");
    }
    weight(&["no-such-user=2"]).expect(1).says("there is no user no-such-user");
    weight(&["@no-such-group=2"]).expect(1).says("there is no group no-such-group");
    weight(&[&format!("{own}=3"), "@0=0"]).expect(1);
    weight(&[&own]).expect(1).says("ACCOUNT=WEIGHT");
    assert_eq!(weight(&["--json"]).expect(0).json(), listed, "nothing of a wrong list is set");
    weight(&[&format!("{own}=none"), "@0=none"]).expect(0);
    assert_eq!(weight(&["--json"]).expect(0).json(), serde_json::json!([]));
}
