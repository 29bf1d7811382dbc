//! `tutti web`: which requests it accepts, and that its answers are those of the verbs.

mod browser;
mod http;
mod pictures;

use self::http::{Reply, dial, send, unchunked};
use crate::harness::{Instance, NOBODY, Running, eventually, within};
use crate::recovery::kill_daemon;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

/// A server, and a session with it.
struct Web {
    running: Running,
    address: String,
    token: String,
    /// The path of the page, with a slash at its end.
    path: String,
    cookie: String,
}

impl Web {
    #[track_caller]
    fn start(instance: &Instance) -> Self {
        Self::of(instance.start(&["web"]))
    }

    #[track_caller]
    fn of(running: Running) -> Self {
        running.wait_for("\n");
        let url = running.out().trim().to_owned();
        let (address, token) = url.strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
        let (address, token) = (address.to_owned(), token.to_owned());
        let mut web = Self { running, address, token, path: String::new(), cookie: String::new() };
        let first = web.get_without(&format!("/?token={}", web.token), "").expect(200);
        let text = first.header("set-cookie").to_owned();
        let parts: Vec<&str> = text.split("; ").collect();
        let [secret, path, "HttpOnly", "SameSite=Strict"] = parts[..] else { panic!("{text}") };
        web.cookie = secret.to_owned();
        web.path = path.strip_prefix("Path=").unwrap().to_owned();
        assert!(web.path.len() > 10 && first.text().contains(&web.path), "{}", first.text());
        web
    }

    /// A request with these lines besides.
    #[track_caller]
    fn request(&self, method: &str, path: &str, lines: &str) -> Reply {
        let (address, cookie) = (&self.address, &self.cookie);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nCookie: {cookie}\r\n{lines}\r\n"
        );
        send(address, head.as_bytes())
    }

    #[track_caller]
    fn get(&self, path: &str) -> Reply {
        self.request("GET", path, "")
    }

    #[track_caller]
    fn post(&self, path: &str) -> Reply {
        let origin = format!("Origin: http://{}\r\nContent-Length: 0\r\n", self.address);
        self.request("POST", path, &origin)
    }

    /// A request without the cookie, with these lines, `Host` among them unless there are none.
    #[track_caller]
    fn get_without(&self, path: &str, lines: &str) -> Reply {
        let host = format!("Host: {}\r\n", self.address);
        let lines = if lines.is_empty() { host.as_str() } else { lines };
        let head = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{lines}\r\n");
        send(&self.address, head.as_bytes())
    }

    /// Begins to read a stream.
    fn stream(&self, path: &str, lines: &str) -> Stream {
        let mut socket = dial(&self.address);
        let (address, cookie) = (&self.address, &self.cookie);
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n{lines}\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
        Stream { socket, bytes: Vec::new() }
    }
}

/// An answer that is read as it comes.
struct Stream {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Stream {
    /// What came so far.
    fn content(&mut self) -> String {
        let mut room = [0; 4096];
        while let Ok(count @ 1..) = self.socket.read(&mut room) {
            self.bytes.extend_from_slice(&room[..count]);
        }
        let end = self.bytes.windows(4).position(|it| it == b"\r\n\r\n");
        end.map(|end| String::from_utf8(unchunked(&self.bytes[end + 4..])).unwrap())
            .unwrap_or_default()
    }

    #[track_caller]
    fn wait_for(&mut self, text: &str) -> String {
        eventually(&format!("{text:?} in a stream"), || {
            Some(self.content()).filter(|content| content.contains(text))
        })
    }
}

/// The numbers of a stream of events, with their words.
fn events(content: &str) -> Vec<(u64, String)> {
    let event = |block: &str| {
        let number = block.lines().find_map(|line| line.strip_prefix("id: "))?.parse().ok()?;
        let json = block.lines().find_map(|line| line.strip_prefix("data: "))?;
        let json: Value = serde_json::from_str(json).unwrap();
        assert_eq!(json["number"], number);
        Some((number, json["event"].as_str().unwrap().to_owned()))
    };
    content.split("\n\n").filter_map(event).collect()
}

#[test]
fn a_scraper_reads_metrics_by_a_token_and_nothing_else() {
    let instance = Instance::new().up();
    let (path, token) = (instance.work.join("token"), "0123456789abcdef0123456789abcdef");
    std::fs::write(&path, format!("{token}\n")).unwrap();
    let mode = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    let words = ["web", "--metrics-token-file", path.to_str().unwrap()];
    for open in [0o644, 0o620, 0o604] {
        mode(open);
        instance.tutti(&words).expect(1).says("run `chmod 600 ");
    }
    mode(0o640);
    let web = Web::of(instance.start(&words));
    let host = format!("Host: {}\r\n", web.address);
    let by = |path: &str, token: &str| {
        web.get_without(path, &format!("{host}Authorization: Bearer {token}\r\n"))
    };
    assert!(by("/metrics", token).expect(200).text().ends_with("# EOF\n"));
    for other in ["/", "/v1/jobs", &web.path, "/metrics/", &format!("{}metrics", web.path)] {
        by(other, token).expect(401);
    }
    let wrong = by("/metrics", &token[1..]).expect(401);
    assert!(wrong.header("www-authenticate").starts_with("Bearer "));
    assert_eq!((wrong.header("connection"), wrong.header("set-cookie")), ("close", ""));
    web.get_without("/metrics", "").expect(401);
    // A name of another site that leads here (DNS rebinding), and an order.
    let foreign = format!("Host: evil.example\r\nAuthorization: Bearer {token}\r\n");
    web.get_without("/metrics", &foreign).expect(403);
    let order = format!(
        "POST /v1/jobs/1/cancel HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\
         {host}Authorization: Bearer {token}\r\n\r\n"
    );
    send(&web.address, order.as_bytes()).expect(401);
    // Without the option no token is good.
    let plain = Web::start(&instance);
    let host = format!("Host: {}\r\n", plain.address);
    let lines = format!("{host}Authorization: Bearer {token}\r\n");
    plain.get_without("/metrics", &lines).expect(401);
    std::fs::write(&path, "short\n").unwrap();
    instance.tutti(&words).expect(1).says("fewer than 20 characters");
    instance.tutti(&["web", "--metrics-token-file", "no-such"]).expect(1).says("openssl rand");
}

#[test]
fn the_page_needs_a_token_that_is_good_once() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    for path in ["/", &web.path, "/v1/jobs", "/?token=", "/?token=0123", "/no-such-path"] {
        let reply = web.get_without(path, "").expect(401);
        assert_eq!(reply.header("connection"), "close");
        assert!(reply.text().contains("<code>tutti web</code>"), "{}", reply.text());
        assert_eq!(reply.header("set-cookie"), "");
    }
    web.get_without(&format!("/?token={}", web.token), "").expect(401);
    // The address for the next browser is another one.
    web.running.wait_for_err("for another browser: http://");
    let said = web.running.err();
    let next = said.rsplit_once("/?token=").unwrap().1.trim();
    assert_ne!(next, web.token);
    web.get_without(&format!("/?token={next}"), "").expect(200);
    let page = web.get(&web.path).expect(200);
    assert!(page.header("content-security-policy").contains("script-src 'self';"));
    assert!(page.text().contains("<title>Tutti</title>") && !page.text().contains("<script>"));
    let tag = page.header("etag").to_owned();
    let again = web.request("GET", &web.path, &format!("If-None-Match: {tag}\r\n")).expect(304);
    assert!(again.body.is_empty());
    for file in page.text().split('"').filter(|it| it.ends_with(".js") || it.ends_with(".css")) {
        web.get(&format!("{}{file}", web.path)).expect(200);
        web.get_without(&format!("{}{file}", web.path), "").expect(401);
    }
    web.running.signal(Signal::SIGINT);
    web.running.wait().expect(0);
}

#[test]
fn requests_that_a_foreign_page_makes_are_refused() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    let with = |lines: &str| {
        let cookie = format!("Cookie: {}\r\n{lines}", web.cookie);
        web.get_without("/v1/jobs", &cookie)
    };
    let own = format!("Host: {}\r\n", web.address);
    let port = web.address.rsplit_once(':').unwrap().1;
    with(&own).expect(200);
    with(&format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}\r\n")).expect(200);
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1"]
    {
        with(&format!("Host: {host}\r\n")).fails(403, "T020");
    }
    for origin in ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1"] {
        with(&format!("{own}Origin: {origin}\r\n")).fails(403, "T020");
    }
    with(&format!("{own}Sec-Fetch-Site: cross-site\r\n")).fails(403, "T020");
    with(&format!("{own}Sec-Fetch-Site: same-site\r\n")).fails(403, "T020");
    let job = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(job, "running");
    let foreign = "Origin: http://evil.example\r\nContent-Length: 0\r\n";
    web.request("POST", &format!("/v1/jobs/{job}/cancel"), foreign).fails(403, "T020");
    assert_eq!(instance.job(job)["state"], "running");
    for place in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
        instance.tutti(&["web", "--listen", place]).expect(1).says("ssh -L").says("[T002]");
    }
    instance.tutti(&["web", "--listen", "8080"]).expect(1).says("such as 127.0.0.1:8080");
}

#[test]
fn wrong_requests_get_an_error_that_says_so() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    for path in
        ["/../../etc/passwd", "../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "v1/jobs/1/../2"]
    {
        web.get(&format!("{}{path}", web.path)).fails(404, "T001");
    }
    web.get("/v1/jobs/x").fails(404, "T021");
    web.get("/v1/jobs/-1").fails(404, "T021");
    web.get("/v1/jobs/99999999999999999999").fails(404, "T021");
    web.get("/v1/jobs/99").fails(404, "T021");
    web.get("/v1/jobs/99/output").fails(404, "T021");
    web.post("/v1/jobs/99/cancel").fails(404, "T021");
    web.get("/v1/jobs?x=1").fails(400, "T001");
    web.get("/v1/jobs?ended=perhaps").fails(400, "T002");
    web.get("/v1/history?last=100000").fails(400, "T002");
    web.get("/v1/history?since_ms=yesterday").fails(400, "T002");
    web.request("GET", "/v1/events", "Last-Event-ID: x\r\n").fails(400, "T002");
    web.get("/v1/jobs/1/cancel").fails(405, "T001");
    web.post("/v1/jobs").fails(400, "T001");
    web.post("/v1/nodes").fails(405, "T001");
    let long = "x".repeat(40 << 10);
    let status = web.get(&format!("/{long}")).status;
    assert!([400, 414, 431].contains(&status), "{status}");
    let status = web.request("GET", "/v1/jobs", &format!("X: {long}\r\n")).status;
    assert!([400, 431].contains(&status), "{status}");
    let head = format!("Content-Length: {}\r\n\r\n{long}", long.len());
    web.request("POST", "/v1/jobs/1/cancel", &head).expect(413);
    send(&web.address, b"no http\r\n\r\n").expect(400);
    web.get("/v1/jobs").expect(200);
}

/// What changes from one look to the next.
fn without_times(mut value: Value) -> Value {
    const TIMES: [&str; 10] = [
        "age_s",
        "service_ms",
        "suspended_ms",
        "usage",
        "time_left_ms",
        "memory_free_bytes",
        "swap",
        "load_averages_milli",
        "processes",
        "external_load_milli",
    ];
    match &mut value {
        Value::Array(items) => items.iter_mut().for_each(|it| *it = without_times(it.take())),
        Value::Object(fields) => {
            fields.retain(|name, _| !TIMES.contains(&name.as_str()) && !name.starts_with("clock_"));
        }
        _ => {}
    }
    value
}

#[test]
fn answers_are_what_the_verbs_print() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    instance.submit(&["-J", "<script>alert(1)</script>", "-o", "/dev/null", "true"]);
    instance.tutti(&["wait", "1"]).expect(0);
    let nap = instance.submit(&["-n", "2", "-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(nap, "running");
    let pairs: [(&str, &[&str]); 5] = [
        ("/v1/jobs", &["ps", "--json"]),
        ("/v1/jobs?ended=true", &["ps", "--all", "--json"]),
        ("/v1/nodes", &["nodes", "--json"]),
        ("/v1/params", &["params", "--json"]),
        ("/v1/history", &["history", "--json"]),
    ];
    for (path, verb) in pairs {
        let (given, wanted) =
            (web.get(path).expect(200).json(), instance.tutti(verb).expect(0).json());
        assert_eq!(without_times(given), without_times(wanted), "{path}");
    }
    let given = web.get(&format!("/v1/jobs/{nap}")).expect(200).json();
    let wanted = instance.tutti(&["show", &nap.to_string(), "--json"]).expect(0).json();
    assert_eq!(without_times(given), without_times(wanted)[0]);
    assert_eq!(web.get("/v1/jobs?user=no-such-user").expect(200).json(), serde_json::json!([]));
    assert!(web.get("/metrics").expect(200).text().ends_with("# EOF\n"));
    let matrix = web.get("/v1/matrix").expect(200).json();
    crate::schemas::check_named("matrix", &matrix);
    assert_eq!((&matrix["jobs"][0]["job"], &matrix["jobs"][0]["row"]), (&nap.into(), &1.into()));
    // What the description lists is there.
    let description = web.get("/openapi.json").expect(200).json();
    let mut described = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        if methods.get("get").is_some() && path != "/v1/events" && !path.ends_with("/output") {
            let reply = web.get(&path.replace("{id}", "1")).expect(200);
            web.get(&format!("{}{}", web.path, &path[1..].replace("{id}", "1"))).expect(200);
            let schema =
                &methods["get"]["responses"]["200"]["content"]["application/json"]["schema"];
            if schema.as_object().is_some_and(|schema| !schema.is_empty()) {
                crate::show::check(&description, schema, &reply.json(), path);
                described += 1;
            }
        }
    }
    assert_eq!(described, 9, "all answers in JSON have a schema");
}

#[test]
fn turns_of_rows_are_in_the_matrix() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    for _ in 0..2 {
        let spinner = instance.submit_spinner(2);
        instance.wait_for_state(spinner, "running");
    }
    let turns = eventually("turns of both rows", || {
        let turns = web.get("/v1/matrix").expect(200).json()["turns"].clone();
        let rows: Vec<&Value> = turns["latest"].as_array()?.iter().map(|it| &it["row"]).collect();
        (rows.contains(&&1.into()) && rows.contains(&&2.into())).then_some(turns)
    });
    let latest = turns["latest"].as_array().unwrap();
    let began = |turn: &Value| turn["began_ns"].as_u64().unwrap();
    assert!(latest.windows(2).all(|pair| began(&pair[0]) < began(&pair[1])), "{turns}");
    let (now, last) = (turns["now_ns"].as_u64().unwrap(), began(latest.last().unwrap()));
    assert!(now >= last && now - last < 60_000_000_000, "{turns}");
}

/// Numbers that repeat from run to run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// A value for a schema, right or wrong.
    fn value(&mut self, schema: &Value) -> Value {
        const WRONG: [&str; 12] = [
            "null",
            "-1",
            "1e99",
            "\"\"",
            "\"x\"",
            "[]",
            "{}",
            "[[]]",
            "\"\\u0000\"",
            "true",
            "18446744073709551616",
            "\"\\u001b[2J%\\n/../../\"",
        ];
        if self.below(3) == 0 {
            return serde_json::from_str(self.one(&WRONG)).unwrap();
        }
        match schema["type"].as_str() {
            Some("integer") => self.below(70_000).into(),
            Some("array") => (0..self.below(4)).map(|_| self.value(&schema["items"])).collect(),
            Some("object") => serde_json::json!({ self.one(&["A", "B=C", ""]): "x" }),
            _ => self
                .one(&["true", "--nope", "1s", "7:any", "1G", "/nope", "last", "%%%", "-"])
                .into(),
        }
    }
}

/// A body by its schema, with some fields.
fn random_body(dice: &mut Dice, schema: &Value) -> String {
    let mut body = serde_json::Map::new();
    for (name, field) in schema["properties"].as_object().unwrap() {
        if dice.below(4) == 0 {
            body.insert(name.clone(), dice.value(field));
        }
    }
    // Nothing of this begins.
    if dice.below(2) == 0 {
        body.insert("line".into(), "true".into());
        body.insert("options".into(), serde_json::json!(["--hold", "-o", "/dev/null"]));
    }
    let text = Value::Object(body).to_string();
    let end = if dice.below(8) == 0 { dice.below(text.len()) } else { text.len() };
    text.get(..end).unwrap_or(&text).to_owned()
}

#[test]
fn no_request_that_the_description_allows_or_forbids_breaks_the_server() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    let description = web.get("/openapi.json").expect(200).json();
    let submission = &description["components"]["schemas"]["submission"];
    let held = instance.submit(&["--hold", "-o", "/dev/null", "true"]).to_string();
    let mut dice = Dice(0x7e57);
    let mut statuses = BTreeMap::<u16, u32>::new();
    for _ in 0..15 {
        for (path, methods) in description["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                // A stream of events has no end.
                if path == "/v1/events" {
                    continue;
                }
                let job = dice.one(&[&held, "1", "99", "-1", "x", "%00", "18446744073709551615"]);
                let mut query = Vec::new();
                for param in operation["parameters"].as_array().unwrap() {
                    let name = param["name"].as_str().unwrap();
                    if param["in"] == "query" && name != "follow" && dice.below(2) == 0 {
                        let value = dice
                            .one(&["1", "true", "-5", "", "%ff", "%00", "user", "1e5", "x%20y"]);
                        query.push(format!("{name}={value}"));
                    }
                }
                if dice.below(10) == 0 {
                    query.push("nope=1".into());
                }
                let path = format!("{}?{}", path.replace("{id}", job), query.join("&"));
                let body = match operation.get("requestBody") {
                    Some(_) => random_body(&mut dice, submission),
                    None => String::new(),
                };
                let lines = format!(
                    "Origin: http://{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    web.address,
                    body.len()
                );
                let reply = web.request(&method.to_uppercase(), &path, &lines);
                *statuses.entry(reply.status).or_default() += 1;
                if reply.status != 200 {
                    let said = reply.json();
                    let code = said["code"].as_str().unwrap_or_default();
                    assert!(code.starts_with('T') && said["error"] != "", "{path}: {said}");
                    assert!(reply.status < 500, "{method} {path} {body}: {said}");
                }
            }
        }
    }
    assert!(statuses[&200] > 50 && statuses[&400] > 20, "{statuses:?}");
    let jobs = instance.tutti(&["ps", "--json"]).expect(0).json();
    for job in jobs.as_array().unwrap() {
        let job = job["job"].to_string();
        instance.tutti(&["cancel", "--now", &job]).expect(0);
    }
    web.get("/v1/jobs").expect(200);
}

#[test]
fn jobs_are_submitted_with_the_rights_and_errors_of_the_verb() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    let kind = "Content-Type: application/json\r\n";
    let submit = |body: &Value, lines: &str| {
        let body = body.to_string();
        let origin = format!("Origin: http://{}\r\n", web.address);
        let head = format!("{origin}{lines}Content-Length: {}\r\n\r\n{body}", body.len());
        web.request("POST", "/v1/jobs", &head)
    };
    let accepted = |body: Value| submit(&body, kind).expect(200).json()["job"].as_u64().unwrap();
    let directory = instance.work.join("there");
    std::fs::create_dir(&directory).unwrap();
    let command = ["sh", "-c", "echo $NAME $TUTTI_RANK; exit 3"];
    let job = accepted(serde_json::json!({
        "command": command, "tasks": 2, "name": "-x <b>", "time": "90s", "output": "%r",
        "directory": directory, "environment": { "NAME": "given" }, "options": ["--keep-going"],
    }));
    instance.tutti(&["wait", &job.to_string()]).expect(3);
    let text = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!((text("0").as_str(), text("1").as_str()), ("given 0\n", "given 1\n"));
    let shown = web.get(&format!("/v1/jobs/{job}")).expect(200).json();
    assert_eq!((&shown["name"], &shown["time_limit_ms"]), (&"-x <b>".into(), &90_000.into()));
    let line = accepted(serde_json::json!({ "line": "echo once > line", "tasks": 2 }));
    let script = "#!/bin/sh\n#TUTTI --name=of-script\necho once > script\n";
    let script = accepted(serde_json::json!({ "script": script }));
    instance.tutti(&["wait", &line.to_string(), &script.to_string()]).expect(0);
    for name in ["line", "script"] {
        assert_eq!(std::fs::read_to_string(instance.work.join(name)).unwrap(), "once\n");
    }
    let held = accepted(serde_json::json!({ "line": "true", "options": ["--hold"] }));
    web.post(&format!("/v1/jobs/{held}/class?name=interactive")).expect(200);
    assert_eq!(instance.job(held)["class"], "interactive");
    web.post(&format!("/v1/jobs/{held}/class")).fails(400, "T002");
    web.post(&format!("/v1/jobs/{held}/class?name=nope")).fails(422, "T034");
    web.post(&format!("/v1/jobs/{held}/release")).expect(200);
    instance.tutti(&["wait", &held.to_string()]).expect(0);
    web.post(&format!("/v1/jobs/{held}/hold")).fails(409, "T022");
    let count = instance.tutti(&["history", "--json"]).expect(0).json().as_array().unwrap().len();
    for (body, status, code) in [
        (serde_json::json!({}), 400, "T001"),
        (serde_json::json!({ "line": "true", "nope": 1 }), 400, "T001"),
        (serde_json::json!({ "line": "true", "script": "true" }), 400, "T001"),
        (serde_json::json!({ "line": "true", "time": "90" }), 400, "T001"),
        (serde_json::json!({ "line": "true", "directory": "/nope" }), 400, "T002"),
        (serde_json::json!({ "line": "true", "class": "nope" }), 422, "T034"),
        (serde_json::json!({ "command": ["/nope"] }), 422, "T004"),
        (serde_json::json!({ "command": ["true"], "tasks": 100_000 }), 422, "T030"),
        (serde_json::json!({ "command": ["true", "\0"] }), 400, "T001"),
        (serde_json::json!({ "script": "#!/bin/sh\n#TUTTI --nope\n" }), 422, "T003"),
        (serde_json::json!({ "line": "x".repeat(300 << 10) }), 413, "T025"),
        (serde_json::json!({ "line": "true", "options": ["--help"] }), 400, "T001"),
    ] {
        submit(&body, kind).fails(status, code);
    }
    // What another page's form can send is no submission.
    submit(&serde_json::json!({ "line": "true" }), "Content-Type: text/plain\r\n")
        .fails(400, "T001");
    let now = instance.tutti(&["history", "--json"]).expect(0).json().as_array().unwrap().len();
    assert_eq!((count, count), (now, instance.jobs().len()), "nothing of that was submitted");
    let report = web.get("/v1/report?by=class").expect(200).json();
    assert_eq!((&report["by"], &report["total"]["jobs"]), (&"class".into(), &count.into()));
    web.get("/v1/report?by=nobody").fails(400, "T002");
}

#[test]
fn actions_act_and_output_is_followed() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    let line = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo last; sleep $NAP";
    let job = instance.submit(&["-o", "out-%r", "-n", "2", "sh", "-c", line]);
    instance.wait_for_state(job, "running");
    let mut all = web.stream(&format!("/v1/jobs/{job}/output?follow=true"), "");
    let mut one = web.stream(&format!("/v1/jobs/{job}/output?follow=true&rank=1"), "");
    one.wait_for("first\n");
    std::fs::write(instance.work.join("go"), "").unwrap();
    one.wait_for("first\nlast\n");
    eventually("both ranks", || (all.content().matches("last\n").count() == 2).then_some(()));
    assert!(all.content().contains("out-0 <==") && all.content().contains("out-1 <=="));
    let tail = web.get(&format!("/v1/jobs/{job}/output?rank=0&lines=1")).expect(200);
    assert_eq!(
        (tail.text().as_str(), tail.header("x-content-type-options")),
        ("last\n", "nosniff")
    );
    web.get(&format!("/v1/jobs/{job}/output?rank=7")).fails(404, "T024");
    web.post(&format!("/v1/jobs/{job}/suspend")).expect(200);
    instance.wait_for_state(job, "suspended");
    web.post(&format!("/v1/jobs/{job}/resume")).expect(200);
    instance.wait_for_state(job, "running");
    web.post(&format!("{}v1/jobs/{job}/cancel?now=true", web.path)).expect(200);
    instance.wait_for_state(job, "ended");
    // The stream ends with the job.
    eventually("the end of the stream", || {
        one.content();
        one.bytes.ends_with(b"0\r\n\r\n").then_some(())
    });
    web.post(&format!("/v1/jobs/{job}/cancel")).fails(409, "T022");
}

#[test]
fn a_stream_of_output_that_fails_does_not_end_as_a_whole_one() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    let job = instance.submit(&["-o", "out", "sh", "-c", "echo first; sleep $NAP"]);
    let mut stream = web.stream(&format!("/v1/jobs/{job}/output?follow=true"), "");
    stream.wait_for("first\n");
    let lock = std::fs::read_to_string(instance.dir.join("lock")).unwrap();
    kill(Pid::from_raw(lock.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    kill(Pid::from_raw(instance.daemon("controller")), Signal::SIGKILL).unwrap();
    eventually("the connection is closed", || {
        stream.content();
        matches!(stream.socket.read(&mut [0; 64]), Ok(0)).then_some(())
    });
    assert!(!stream.bytes.ends_with(b"0\r\n\r\n"), "it looks like all of the output");
    instance.tutti(&["up"]).expect(0);
    instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]).expect(137);
}

#[test]
fn events_are_resumed_by_their_number() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    let mut first = web.stream("/v1/events", "");
    first.wait_for(": a stream of events");
    instance.submit(&["-o", "/dev/null", "true"]);
    let seen = events(&first.wait_for("job_ended"));
    drop(first);
    instance.submit(&["-o", "/dev/null", "true"]);
    instance.tutti(&["wait", "2"]).expect(0);
    kill_daemon(&instance, "controller");
    let (middle, _) = seen[1];
    let mut second = web.stream("/v1/events", &format!("Last-Event-ID: {middle}\r\n"));
    eventually("all events behind it", || {
        let words = events(&second.content());
        (words.iter().filter(|(_, word)| word == "job_ended").count() == 2).then_some(())
    });
    instance.submit(&["-o", "/dev/null", "true"]);
    let behind = eventually("the event of the third job", || {
        let all = events(&second.content());
        (all.iter().filter(|(_, word)| word == "job_ended").count() == 3).then_some(all)
    });
    assert!(behind.windows(2).all(|pair| pair[0].0 < pair[1].0), "{behind:?}");
    let wanted = instance.tutti(&["events", "--since", &middle.to_string()]).expect(0).text();
    let wanted: Vec<u64> = wanted
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["number"].as_u64().unwrap())
        .collect();
    let given: Vec<u64> = behind.iter().map(|(number, _)| *number).collect();
    assert_eq!(given, wanted[..given.len()], "none is missing, none comes twice");
    // All that are kept.
    let mut all = web.stream("/v1/events?after=0", "");
    let all = events(&all.wait_for("controller_started"));
    assert!(all.len() >= seen.len());
}

#[test]
fn connections_are_bounded_and_slow_ones_are_closed() {
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    let idle: Vec<TcpStream> = (0..300).map(|_| dial(&web.address)).collect();
    let mut closed = 0;
    eventually("connections that are closed", || {
        closed = idle.iter().filter(|it| is_closed(it)).count();
        (closed > 0).then_some(())
    });
    assert!(closed <= 60, "{closed} of 300");
    // Those that send no request are closed by themselves.
    let waiting = eventually("a place", || {
        let mut stream = dial(&web.address);
        let head = format!(
            "GET /v1/jobs HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n",
            web.address, web.cookie
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut room = [0; 12];
        stream.read_exact(&mut room).ok()?;
        Some(room)
    });
    assert_eq!(&waiting, b"HTTP/1.1 200");
}

/// Sockets and resident memory, in KiB, of a process.
fn sockets_and_memory(pid: i32) -> (usize, usize) {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    let sockets = links.filter(|link| link.to_string_lossy().starts_with("socket:")).count();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (sockets, memory.trim().trim_end_matches(" kB").parse().unwrap())
}

#[test]
fn ten_thousand_connections_and_stalled_readers_stay_bounded() {
    // For 100 readers.
    const MOST_KIB: usize = 100 * (2 << 10);
    let instance = Instance::new().up();
    let web = Web::start(&instance);
    let pid = web.running.pid();
    // More than the buffers of a connection hold.
    let line = "head -c 67108864 /dev/zero | tr '\\0' x";
    let job = instance.submit(&["-o", "out", "sh", "-c", line]);
    instance.tutti(&["wait", &job.to_string()]).expect(0);
    web.get("/v1/jobs").expect(200);
    let (sockets, memory) = sockets_and_memory(pid);
    // Readers of output that take nothing: others are served, and after 20 s these are closed.
    let request = format!(
        "GET /v1/jobs/{job}/output HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n",
        web.address, web.cookie
    );
    let stalled: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = dial(&web.address);
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    eventually("output for all", || (sockets_and_memory(pid).0 >= sockets + 100).then_some(()));
    std::thread::sleep(std::time::Duration::from_secs(2));
    let taken = sockets_and_memory(pid).1;
    assert!(taken < memory + MOST_KIB, "{taken} KiB after {memory}");
    web.get("/v1/jobs").expect(200);
    within(std::time::Duration::from_secs(60), "stalled readers are closed", || {
        (sockets_and_memory(pid).0 <= sockets + 8).then_some(())
    });
    drop(stalled);
    // Connections that ask for nothing.
    let mut idle = Vec::new();
    for number in 1..=10_000 {
        idle.push(dial(&web.address));
        if number % 400 == 0 {
            idle.retain(|it| !is_closed(it));
            let (now, taken) = sockets_and_memory(pid);
            assert!(now <= sockets + 260, "{now} sockets after {sockets}");
            assert!(taken < memory + MOST_KIB, "{taken} KiB after {memory}");
        }
    }
    drop(idle);
    eventually("all are closed", || (sockets_and_memory(pid).0 <= sockets + 8).then_some(()));
    web.get("/v1/jobs").expect(200);
}

fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut room = [0; 1];
    matches!(stream.peek(&mut room), Ok(0))
}

#[test]
fn the_controller_decides_what_the_user_of_the_page_may_do() {
    let instance = Instance::of_the_system().up();
    let job = instance.submit(&["-J", "mine", "-o", "out", "sleep", &instance.nap]);
    instance.wait_for_state(job, "running");
    let web = Web::of(Running::start(instance.command_as(Some(NOBODY), &["web"])));
    assert_eq!(web.get("/v1/jobs").expect(200).json()[0]["job"], job);
    let seen = web.get(&format!("/v1/jobs/{job}")).expect(200).json();
    assert_eq!((&seen["name"], &seen["details"]), (&"mine".into(), &Value::Null));
    web.get(&format!("/v1/jobs/{job}/output")).fails(403, "T020");
    for action in ["cancel", "suspend", "resume"] {
        web.post(&format!("/v1/jobs/{job}/{action}")).fails(403, "T020");
    }
    assert_eq!(instance.job(job)["state"], "running");
}

#[test]
fn a_unix_socket_is_for_its_user_alone_and_needs_no_token() {
    use std::os::unix::net::UnixStream;
    let instance = Instance::new().up();
    let path = instance.work.join("page");
    let place = format!("unix:{}", path.display());
    let running = instance.start(&["web", "--listen", &place]);
    running.wait_for("curl --unix-socket");
    let get = |host: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        write!(stream, "GET /v1/jobs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = get("localhost");
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("[]"), "{text}");
    // It may have been forwarded to a port that a browser reaches.
    assert!(get("elsewhere").starts_with("HTTP/1.1 403"));
    // What is no socket stays what it is.
    let file = instance.work.join("thesis");
    std::fs::write(&file, "text").unwrap();
    let place = format!("unix:{}", file.display());
    instance.tutti(&["web", "--listen", &place]).expect(1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
    // The mode keeps other users out; where it does not, the kernel names them.
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let line = "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ARGV[0])) or die; \
                syswrite(S, \"GET /v1/jobs HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n\"); sysread(S, $_, 99); print";
    let mut other = std::process::Command::new("setpriv");
    let user = NOBODY.to_string();
    other.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--", "perl", "-e", line]);
    other.arg(&path);
    let done = Running::start(other).wait();
    assert!(!done.text().contains("200"), "{}", done.text());
}
