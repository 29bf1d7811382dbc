//! The page in a real browser: Debian's Chromium, driven by its own driver.
//!
//! `tests/install-deps --web` installs both; `tests/web` runs these tests.

use super::Web;
use super::http::{Reply, dial};
use crate::harness::{Instance, Running, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use tutti_testbed::Node;

/// Keys as a driver of browsers names them.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// A browser, and its driver.
pub(super) struct Browser {
    address: String,
    session: String,
    /// The node of a test bed on which it is.
    node: Option<Node>,
    _driver: Running,
}

impl Browser {
    fn start(instance: &Instance) -> Self {
        Self::with(instance, None)
    }

    /// A browser that reaches what a node of a test bed does.
    pub(super) fn on_node(instance: &Instance, node: &Node) -> Self {
        Self::with(instance, Some(node.clone()))
    }

    fn with(instance: &Instance, node: Option<Node>) -> Self {
        let mut command = match &node {
            Some(node) => node.command("chromedriver"),
            None => Command::new("chromedriver"),
        };
        command.arg("--port=0").current_dir(&instance.work).env("HOME", &instance.work);
        command.env("TMPDIR", &instance.work).stdin(std::process::Stdio::null());
        let driver = Running::start(command);
        driver.wait_for("started successfully on port ");
        let said = driver.out();
        let port = said.rsplit_once(" on port ").unwrap().1;
        let port = port.trim().trim_end_matches('.');
        let address = format!("127.0.0.1:{port}");
        let mut browser = Self { address, session: String::new(), node, _driver: driver };
        // Without a sandbox, as root can't have one.
        let args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let options = json!({ "args": args, "binary": "/usr/bin/chromium" });
        let wanted =
            json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let made = browser.call("POST", "/session", &wanted);
        browser.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        browser
    }

    #[track_caller]
    fn dial(&self) -> TcpStream {
        match &self.node {
            Some(node) => node.dial(&self.address).unwrap(),
            None => dial(&self.address),
        }
    }

    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut stream = self.dial();
        stream.write_all(head.as_bytes()).unwrap();
        let reply = Reply::read(&mut stream);
        let text = reply.text();
        let reply = reply.expect(200).json();
        assert!(reply.get("value").is_some(), "{text}");
        reply["value"].clone()
    }

    #[track_caller]
    pub(super) fn go(&self, url: &str) {
        self.call("POST", &format!("{}/url", self.session), &json!({ "url": url }));
    }

    #[track_caller]
    pub(super) fn run(&self, script: &str) -> Value {
        let body = json!({ "script": script, "args": [] });
        self.call("POST", &format!("{}/execute/sync", self.session), &body)
    }

    /// Waits until a script gives something true.
    #[track_caller]
    pub(super) fn wait(&self, script: &str) -> Value {
        eventually(&format!("{script} in: {}", self.text()), || {
            let value = self.run(script);
            (value != Value::Null && value != json!(false)).then_some(value)
        })
    }

    fn text(&self) -> String {
        self.run("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Clicks as a user does: what is covered or not visible can't be clicked.
    #[track_caller]
    pub(super) fn click(&self, selector: &str) {
        let body = json!({ "using": "css selector", "value": selector });
        let found = self.call("POST", &format!("{}/element", self.session), &body);
        let element =
            found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        self.call("POST", &format!("{}/element/{element}/click", self.session), &json!({}));
    }

    /// Presses a key and lets it go.
    #[track_caller]
    fn press(&self, key: &str) {
        let actions =
            json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let keyboard = json!([{ "type": "key", "id": "keyboard", "actions": actions }]);
        let path = format!("{}/actions", self.session);
        self.call("POST", &path, &json!({ "actions": keyboard }));
    }

    /// Goes on to an element by the tabulator alone.
    #[track_caller]
    fn tab_to(&self, selector: &str) {
        for _ in 0..60 {
            self.press(TAB);
            if self.run(&format!("return document.activeElement.matches('{selector}')")) == true {
                return;
            }
        }
        panic!("the tabulator never comes to {selector}: {}", self.text());
    }

    /// Chooses whether the system asks for dark colours.
    pub(super) fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let command =
            json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.call("POST", &format!("{}/goog/cdp/execute", self.session), &command);
    }

    /// As on a phone, where they show only while a finger moves.
    pub(super) fn hide_scrollbars(&self) {
        let command =
            json!({ "cmd": "Emulation.setScrollbarsHidden", "params": { "hidden": true } });
        self.call("POST", &format!("{}/goog/cdp/execute", self.session), &command);
    }

    pub(super) fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height });
        self.call("POST", &format!("{}/goog/cdp/execute", self.session), &json!({
            "cmd": "Emulation.setDeviceMetricsOverride",
            "params": { "width": size["width"], "height": size["height"], "deviceScaleFactor": 1, "mobile": width < 500 },
        }));
    }

    /// Keeps a picture where `TUTTI_SCREENSHOTS` says.
    pub(super) fn picture(&self, name: &str) {
        let Some(directory) = std::env::var_os("TUTTI_SCREENSHOTS") else { return };
        let reply = self.call("GET", &format!("{}/screenshot", self.session), &json!({}));
        let bytes = decoded(reply.as_str().unwrap());
        std::fs::write(Path::new(&directory).join(format!("{name}.png")), bytes).unwrap();
    }

    /// What the page logged: errors of scripts, and what its own policy refused.
    fn errors(&self) -> Vec<String> {
        let log =
            self.call("POST", &format!("{}/se/log", self.session), &json!({ "type": "browser" }));
        let entries = log.as_array().unwrap().iter();
        entries.map(|it| it["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session.
        let head = format!(
            "DELETE {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.session, self.address
        );
        let Some(mut stream) = (match &self.node {
            Some(node) => node.dial(&self.address).ok(),
            None => TcpStream::connect(&self.address).ok(),
        }) else {
            return;
        };
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.read(&mut [0; 64]);
    }
}

/// Bytes of base64.
fn decoded(text: &str) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for value in text.bytes().filter_map(|byte| LETTERS.iter().position(|it| *it == byte)) {
        bits = (bits << 6 | u32::try_from(value).unwrap()) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}

#[test]
#[ignore = "needs Chromium: tests/web installs it and runs this"]
fn the_page_shows_the_matrix_and_its_buttons_act() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "usage_interval=1s"]).expect(0);
    let web = Web::start(&instance);
    web.running.wait_for_err("for another browser: ");
    let said = web.running.err();
    let address = said.rsplit_once("for another browser: ").unwrap().1.trim().to_owned();
    let script = "<img src=x onerror=window.hit=1>";
    let first = instance.submit(&[
        "-J",
        "solver",
        "-n",
        "2",
        "-o",
        "out",
        "sh",
        "-c",
        "echo hello $TUTTI_JOB; while :; do :; done",
    ]);
    let second = instance.submit(&[
        "-J",
        script,
        "-n",
        "2",
        "-o",
        "/dev/null",
        "sh",
        "-c",
        "while :; do :; done",
    ]);
    for job in [first, second] {
        instance.wait_for_state(job, "running");
    }
    let waits = instance.submit(&["-J", "later", "--hold", "-o", "/dev/null", "true"]);
    instance.submit(&["-J", "quick", "-o", "/dev/null", "true"]);
    let browser = Browser::start(&instance);
    browser.resize(1280, 900);
    browser.go(&address);
    browser.wait(&format!(
        "return document.querySelectorAll('#matrix a[href=\"#/job/{first}\"]').length > 0"
    ));
    browser.wait(&format!(
        "return document.querySelectorAll('#matrix a[href=\"#/job/{second}\"]').length > 0"
    ));
    browser.wait("return document.querySelector('#live').textContent === 'live'");
    // Rows take turns, and the page shows which has its own.
    let turn = "return document.querySelector('#matrix .row.turn')?.dataset.row";
    browser.wait(&format!("{turn} === '1'"));
    browser.wait(&format!("{turn} === '2'"));
    browser.wait(&format!(
        "return document.querySelector('#waiting').innerText.includes('later') && {waits}"
    ));
    browser.picture("matrix");
    lists(&browser);
    submit(&browser, &instance);
    cancel(&browser, &instance, first);
    narrow(&browser, first);
    assert_eq!(browser.run("return window.hit ?? null"), Value::Null, "a name is text");
    // The form was declined once, on purpose.
    let mut errors = browser.errors();
    errors.retain(|it| !(it.contains("/v1/jobs - ") && it.contains("status of 400")));
    assert!(errors.is_empty(), "{errors:#?}");
}

/// A page of a private instance in a browser.
fn open_page(instance: &Instance) -> (Web, Browser) {
    let web = Web::start(instance);
    web.running.wait_for_err("for another browser: ");
    let said = web.running.err();
    let address = said.rsplit_once("for another browser: ").unwrap().1.trim().to_owned();
    let browser = Browser::start(instance);
    browser.resize(1280, 900);
    browser.go(&address);
    browser.wait("return document.querySelector('#live').textContent === 'live'");
    (web, browser)
}

#[test]
#[ignore = "needs Chromium: tests/web installs it and runs this"]
fn page_works_by_keyboard_alone() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "policy=space:fcfs"]).expect(0);
    let all = std::thread::available_parallelism().unwrap().to_string();
    let line = "echo rank $TUTTI_RANK is here; while :; do sleep 1; done";
    let runs = instance
        .submit(&["-J", "solver", "-n", &all, "-t", "20m", "-o", "out-%r", "sh", "-c", line]);
    instance.wait_for_state(runs, "running");
    let waits =
        instance.submit(&["-J", "later", "-n", &all, "-t", "5m", "-o", "/dev/null", "sleep", "1"]);
    let (_web, browser) = open_page(&instance);
    forecast(&browser, waits);
    // Press the buttons of the job that runs, and of the one that waits.
    browser.press("j");
    open_job(&browser, runs);
    browser.wait("return document.querySelector('pre.output')?.textContent.includes('is here')");
    choose_rank(&browser);
    act(&browser, &instance, runs, ("suspend", "suspended"));
    browser.picture("suspended");
    act(&browser, &instance, runs, ("resume", "running"));
    browser.press("j");
    open_job(&browser, waits);
    act(&browser, &instance, waits, ("hold", "queued"));
    assert!(instance.job(waits)["reason"].as_str().unwrap().contains("held"));
    act(&browser, &instance, waits, ("release", "queued"));
    assert!(!instance.job(waits)["reason"].as_str().unwrap().contains("held"));
    dark(&browser, runs);
    let errors = browser.errors();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// The history shows when a waiting job is expected to start: to the right of now.
fn forecast(browser: &Browser, waits: u64) {
    browser.press("h");
    let places = format!(
        "const job = document.querySelector('#gantt a[href=\"#/job/{waits}\"]'); \
         const now = document.querySelector('#gantt line.now'); \
         if (!job || !now) return null; \
         const number = (it, name) => Number(it.getAttribute(name)); \
         const last = [...job.querySelectorAll('rect.wait')].at(-1); \
         return number(last, 'x') > number(now, 'x1') + 50 && number(last, 'width') > 50"
    );
    browser.wait(&places);
    browser.picture("forecast");
}

/// Opens a job of the list. The focus stays where it is while the list changes.
fn open_job(browser: &Browser, job: u64) {
    let link = format!("a[href=\"#/job/{job}\"]");
    browser.wait(&format!("return document.querySelector('main table {link}') !== null"));
    browser.tab_to(&format!("main table {link}"));
    let old = "window.old = document.activeElement";
    browser.run(old);
    browser.wait("return !window.old.isConnected");
    let has_focus = format!("return document.activeElement.matches('main table {link}')");
    assert_eq!(browser.run(&has_focus), true, "the focus is gone: {}", browser.text());
    browser.press(ENTER);
    browser.wait(&format!("return document.title === 'Job {job} - Tutti'"));
    browser.wait("return document.querySelectorAll('button[data-action]').length > 0");
}

fn choose_rank(browser: &Browser) {
    let output = "document.querySelector('pre.output').textContent";
    browser
        .wait(&format!("return {output}.includes('rank 0 is') && {output}.includes('rank 1 is')"));
    browser.tab_to("select[aria-label=Rank]");
    // Its list opens by no key: a letter chooses.
    browser.press("r");
    browser.wait("return document.activeElement.value === '0'");
    browser.press("r");
    browser.wait("return document.activeElement.value === '1'");
    browser.wait(&format!("return {output} === 'rank 1 is here\\n'"));
    browser.picture("rank");
    browser.run("document.querySelector('#main').focus()");
}

/// Presses a button, goes back once, then confirms it.
fn act(browser: &Browser, instance: &Instance, job: u64, (verb, state): (&str, &str)) {
    let button = format!("button[data-action={verb}]");
    browser.wait(&format!("return document.querySelector('{button}') !== null"));
    browser.tab_to(&button);
    browser.press(ENTER);
    browser.wait("return document.querySelector('#confirm').open");
    browser.press(ENTER);
    browser.wait("return !document.querySelector('#confirm').open");
    let has_button = format!("return document.activeElement.matches('{button}')");
    assert_eq!(browser.run(&has_button), true, "the focus comes back to the button");
    browser.press(ENTER);
    browser.wait("return document.querySelector('#confirm').open");
    browser.tab_to("#confirm-yes");
    browser.press(ENTER);
    browser.wait(&format!("return document.querySelector('{button}') === null"));
    instance.wait_for_state(job, state);
}

/// Dark as the system asks, and as the button says: text stays readable.
fn dark(browser: &Browser, job: u64) {
    let light = "const sum = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0); \
                 const style = getComputedStyle(document.body); \
                 return [sum(style.backgroundColor), sum(style.color)]";
    let contrast = |browser: &Browser| {
        let both = browser.run(light);
        (both[0].as_f64().unwrap(), both[1].as_f64().unwrap())
    };
    browser.prefer("light");
    let (ground, text) = contrast(browser);
    assert!(ground > text + 300.0, "{ground} {text}");
    browser.prefer("dark");
    let (ground, text) = contrast(browser);
    assert!(text > ground + 300.0, "{ground} {text}");
    for (key, name) in
        [("m", "matrix"), ("j", "jobs"), ("n", "nodes"), ("h", "history"), ("r", "reports")]
    {
        browser.press(key);
        browser.wait("return document.querySelectorAll('main .card').length > 0 && !document.querySelector('main > p')");
        std::thread::sleep(std::time::Duration::from_millis(300));
        browser.picture(&format!("{name}-dark"));
    }
    browser.run(&format!("location.hash = '#/job/{job}'"));
    browser.wait("return document.querySelectorAll('button[data-action]').length > 0");
    browser.picture("job-dark");
    browser.tab_to("#theme");
    browser.press(ENTER);
    browser.wait("return document.documentElement.dataset.theme === 'light'");
    let (ground, text) = contrast(browser);
    assert!(ground > text + 300.0, "the button overrides the system: {ground} {text}");
    browser.press(ENTER);
    browser.wait("return document.documentElement.dataset.theme === 'dark'");
}

/// The views of jobs, nodes and history.
fn lists(browser: &Browser) {
    browser.click("nav a[data-view=jobs]");
    browser.wait("return document.querySelector('main').innerText.includes('solver')");
    browser.picture("jobs");
    browser.click("nav a[data-view=nodes]");
    browser.wait("return document.querySelectorAll('main .meter').length >= 3");
    browser.picture("nodes");
    browser.click("nav a[data-view=history]");
    browser.wait("return document.querySelectorAll('#gantt .job').length >= 2");
    browser.picture("history");
    browser.click("nav a[data-view=reports]");
    browser.wait("return document.querySelectorAll('#usage .by-jobs').length > 0");
    browser.wait("return document.querySelectorAll('#usage-nodes tbody tr').length >= 1");
    browser.wait("return document.querySelector('#report').innerText.includes('total')");
    browser.run(
        "const by = document.querySelector('#report-by'); by.value = 'class'; \
         by.dispatchEvent(new Event('change'))",
    );
    browser.wait("return document.querySelector('#report').innerText.includes('Class')");
    browser.picture("reports");
}

/// The form of a new job: an error, then a job that is held, and released by a button.
fn submit(browser: &Browser, instance: &Instance) {
    browser.click("nav a[data-view=submit]");
    browser.wait("return document.activeElement.id === 'work'");
    let set = |id: &str, text: &str| {
        browser.run(&format!(
            "const it = document.getElementById('{id}'); it.value = {}; \
             it.dispatchEvent(new Event('input', {{ bubbles: true }}))",
            json!(text)
        ));
    };
    set("work", "#!/bin/sh\n#TUTTI --hold -o /dev/null\necho from the form\n");
    set("kind", "script");
    set("field-time", "90");
    browser.picture("submit");
    browser.click("form.submit button");
    browser.wait("return document.querySelector('#alert').textContent.includes('[T001]')");
    browser.picture("submit-error");
    set("field-time", "90s");
    set("field-name", "of-form");
    browser.click("form.submit button");
    browser.wait("return document.querySelector('main').innerText.includes('of-form')");
    browser.click("button[data-action=release]");
    browser.click("#confirm-yes");
    browser.wait("return document.querySelector('main').innerText.includes('completed')");
    let done = instance.tutti(&["history", "--json"]).expect(0).json();
    assert!(done.as_array().unwrap().iter().any(|job| job["name"] == "of-form"), "{done}");
}

/// The job's page: output, then an action that asks before it acts.
fn cancel(browser: &Browser, instance: &Instance, job: u64) {
    browser.run(&format!("location.hash = '#/job/{job}'"));
    browser.wait(&format!(
        "return document.querySelector('pre.output')?.textContent.includes('hello {job}')"
    ));
    browser.wait("return document.querySelectorAll('#bar svg .job').length >= 1");
    browser.wait("return document.querySelector('#bar').innerText.includes('ran ')");
    browser.picture("job");
    browser.click("button[data-action=cancel]");
    browser.wait("return document.querySelector('#confirm').open");
    browser.picture("confirm");
    browser.click("#confirm button[value=no]");
    browser.wait("return !document.querySelector('#confirm').open");
    assert_eq!(instance.job(job)["exit_code"], Value::Null);
    browser.click("button[data-action=cancel]");
    browser.click("#confirm-yes");
    instance.wait_for_state(job, "ended");
    browser.wait("return document.querySelector('main').innerText.includes('cancelled')");
    browser.wait("return document.querySelectorAll('button[data-action]').length === 0");
}

/// As on a phone: no view is wider than the screen.
fn narrow(browser: &Browser, job: u64) {
    browser.resize(390, 800);
    for (name, hash) in [
        ("matrix", "#/".to_owned()),
        ("jobs", "#/jobs".to_owned()),
        ("nodes", "#/nodes".to_owned()),
        ("history", "#/history".to_owned()),
        ("reports", "#/reports".to_owned()),
        ("submit", "#/submit".to_owned()),
        ("job", format!("#/job/{job}")),
    ] {
        browser.run(&format!("location.hash = '{hash}'"));
        browser.wait("return document.querySelectorAll('main .card').length > 0 && !document.querySelector('main > p')");
        browser.wait(&format!(
            "return '{name}' !== 'matrix' || document.querySelector('#matrix svg') !== null"
        ));
        std::thread::sleep(std::time::Duration::from_millis(300));
        browser.picture(&format!("{name}-390"));
        let width = browser.run("return document.documentElement.scrollWidth");
        assert_eq!(width, 390, "{name} is wider than the screen");
    }
}
