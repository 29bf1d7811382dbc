//! The client for Python and its server for assistants, with their own tests, and a real instance.

use crate::harness::Instance;
use std::path::Path;

#[test]
fn the_client_for_python_does_what_its_tests_say() {
    let instance = Instance::new().up();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/tests");
    let tests = tests.display();
    // Compiled code would stay in the source.
    let line = format!("PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover -s {tests}");
    instance.shell(&line).expect(0).says("OK");
}
