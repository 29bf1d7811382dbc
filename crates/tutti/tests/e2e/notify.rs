//! Notifications about jobs: by a command, by mail, by a webhook.

use crate::harness::{Instance, NOBODY, Running, eventually};
use crate::recovery::kill_daemon;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The key of webhooks here.
const KEY: &str = "a key of the test";

fn path(instance: &Instance, name: &str) -> String {
    instance.work.join(name).display().to_string()
}

fn text(instance: &Instance, name: &str) -> String {
    fs::read_to_string(instance.work.join(name)).unwrap_or_default()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A server on loopback that answers requests with these statuses in turn, the last one for ever.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = seen.lock().unwrap().len();
                let status = statuses[count.min(statuses.len() - 1)];
                if let Some(request) = answer(stream, status) {
                    seen.lock().unwrap().push(request);
                }
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits until there are so many.
    fn wait_for(&self, count: usize) -> Vec<String> {
        eventually(&format!("{count} requests"), || {
            Some(self.requests()).filter(|requests| requests.len() >= count)
        })
    }
}

/// Reads a request whole, and answers it.
fn answer(mut stream: TcpStream, status: u16) -> Option<String> {
    let mut text = String::new();
    let is_whole = |text: &str| {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?;
        (body.len() >= length.parse().ok()?).then_some(())
    };
    while is_whole(&text).is_none() {
        let mut room = [0; 4096];
        let count = stream.read(&mut room).ok().filter(|count| *count > 0)?;
        text.push_str(&String::from_utf8_lossy(&room[..count]));
    }
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").ok()?;
    Some(text)
}

fn header<'a>(request: &'a str, name: &str) -> &'a str {
    let start = format!("{name}: ");
    let mut lines = request.lines();
    lines.find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{name}: {request}"))
}

fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[track_caller]
fn is_signed(request: &str) {
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let sum = header(request, "X-Tutti-Signature").strip_prefix("sha256=").unwrap();
    let byte = |at: usize| u8::from_str_radix(&sum[at..at + 2], 16).unwrap();
    let sum: Vec<u8> = (0..sum.len()).step_by(2).map(byte).collect();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, KEY.as_bytes());
    ring::hmac::verify(&key, body.as_bytes(), &sum).expect("the signature is right");
}

#[test]
fn a_notifying_command_runs_as_the_jobs_user_and_leaves_nothing() {
    let instance = Instance::of_the_system().up();
    let (out, ids) = (path(&instance, "out"), path(&instance, "ids"));
    let line = format!(
        "cat >> {out}; echo $(id -u) $(id -G) $TUTTI_JOB $TUTTI_NOTIFICATION >> {ids}; \
         setsid sh -c 'sleep {0}' & sleep 0.1",
        instance.nap
    );
    let words = ["submit", "--parsable", "--notify", "all", "--notify-command", &line];
    let job = ["-o", "/dev/null", "sh", "-c", "exit 3"];
    let submit = instance.command_as(Some(NOBODY), &[&words[..], &job[..]].concat());
    let job = Running::start(submit).wait().expect(0).text().trim().to_owned();
    eventually("two calls", || (text(&instance, "ids").lines().count() == 2).then_some(()));
    let wanted = format!("65534 65534 {job} start\n65534 65534 {job} fail\n");
    assert_eq!(text(&instance, "ids"), wanted);
    let seen = lines(&text(&instance, "out"));
    assert_eq!(
        (&seen[0]["notification"], &seen[1]["notification"]),
        (&"start".into(), &"fail".into())
    );
    assert_eq!((&seen[1]["exit_code"], &seen[1]["ending"]), (&3.into(), &"failed".into()));
    assert_eq!(seen[1]["job"].to_string(), job);
    eventually("the end of what the command left", || instance.nappers().is_empty().then_some(()));
    // A job that ends well is not told of with `fail`, and one that asks for nothing never.
    let fail = ["-o", "/dev/null", "--notify", "fail", "--notify-command", &line, "true"];
    let quiet = instance.submit(&fail);
    let loud = instance.submit(&["-o", "/dev/null", "--notify-command", &line, "true"]);
    eventually("the end", || {
        text(&instance, "ids").contains(&format!(" {loud} end")).then_some(())
    });
    assert!(!text(&instance, "ids").contains(&format!(" {quiet} ")));
    // Of an array, the start of the first element and the end of all.
    let options = ["-o", "/dev/null", "--array", "3-5", "--notify", "all"];
    let array = instance.submit(&[&options[..], &["--notify-command", &line, "true"]].concat());
    eventually("the array's end", || {
        text(&instance, "ids").contains(&format!(" {array} end")).then_some(())
    });
    assert_eq!(text(&instance, "ids").lines().count(), 5, "{}", text(&instance, "ids"));
}

/// Leaves a process behind that goes on as another one, again and again, each in a session of its
/// own: all that it leaves is to be reaped.
const CHAIN: &str = "import os, time
end = time.monotonic() + 20
if os.fork() == 0:
    while time.monotonic() < end:
        try:
            if os.fork() > 0: os._exit(0)
            os.setsid()
        except OSError: time.sleep(0.01)
    os._exit(0)
";

#[test]
fn a_notifying_command_has_bounds_and_what_it_leaves_is_reaped() {
    let instance = Instance::of_the_system().up();
    instance.tutti(&["params", "notify_tries=1"]).expect(0);
    let notify = |line: &str| {
        let words = ["submit", "--parsable", "--notify-command", line, "-o", "/dev/null", "true"];
        Running::start(instance.command_as(Some(NOBODY), &words)).wait().expect(0);
    };
    let says = |text: &str| eventually(text, || instance.log().contains(text).then_some(()));
    let at = |name: &str| path(&instance, name);
    let wait = |name: &str| {
        eventually(name, || Some(text(&instance, name)).filter(|it| it.ends_with('\n')))
    };
    // What it says is read, and the begin of it is kept.
    let much = "echo too much >&2; head -c 30000000 /dev/zero | tr '\\0' x >&2";
    notify(&format!("{much}; stat -Lc %F /proc/self/fd/2 > {}; exit 7", at("kind")));
    says("it ended with exit status: 7: too much xxx");
    assert_eq!(wait("kind"), "fifo\n");
    // Processes and memory.
    let many = "i=0; while [ $i -lt 200 ]; do sleep 20 & i=$((i + 1)); done";
    notify(&format!("cat /proc/self/cgroup > {}; {many}; echo all > {}", at("groups"), at("all")));
    says("fork");
    assert!(wait("groups").contains("/notify-"), "a group of its own");
    assert!(!instance.work.join("all").exists(), "200 processes");
    let tail = at("tail");
    notify(&format!(
        "head -c 500000000 /dev/zero | tail; s=$?; echo $s $(cat /proc/self/oom_score_adj) > {tail}"
    ));
    let said = wait("tail");
    let (status, score) = said.trim().split_once(' ').unwrap();
    assert_eq!(status, "137", "more memory than it may have");
    assert!(score.parse::<i32>().unwrap() >= 0, "it ends before any daemon: {score}");
    // What is left when it has ended.
    fs::write(instance.work.join("chain.py"), CHAIN).unwrap();
    notify(&format!("python3 {}; echo done > {}", at("chain.py"), at("chained")));
    wait("chained");
    let notifier = instance.daemon("notifier");
    eventually("the end of all processes, and of their groups", || {
        let children = fs::read_to_string(format!("/proc/{notifier}/task/{notifier}/children"));
        children.unwrap().trim().is_empty().then_some(())
    });
    let has_group = |name: &str| name.starts_with("notify-");
    let top = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    for subtree in top.iter().map(|top| top.join(crate::audit::cgroup_name(&instance.dir, 0))) {
        eventually("the end of their groups", || {
            let groups = fs::read_dir(&subtree).into_iter().flatten().flatten();
            let mut names = groups.map(|it| it.file_name().to_string_lossy().into_owned());
            (!names.any(|name| has_group(&name))).then_some(())
        });
    }
}

#[test]
fn mail_goes_through_sendmail_also_from_lines_of_sbatch() {
    let instance = Instance::new();
    let (args, mail) = (path(&instance, "args"), path(&instance, "mail"));
    instance.script("sendmail", &format!("#!/bin/sh\necho \"$@\" >> {args}\ncat >> {mail}\n"));
    let mut up = instance.command(&["up"]);
    up.env("TUTTI_SENDMAIL", path(&instance, "sendmail"));
    Running::start(up).wait().expect(0);
    let head = "#SBATCH --mail-type=END,FAIL\n#SBATCH --mail-user=ada@host.example\n";
    instance.script("job.sh", &format!("#!/bin/sh\n{head}true\n"));
    let job = instance.submit(&["-J", "x\u{e9}", "-o", "/dev/null", "./job.sh"]);
    eventually("a mail", || text(&instance, "mail").contains("shows more").then_some(()));
    assert_eq!(text(&instance, "args"), "-oi -odi -- ada@host.example\n");
    let said = text(&instance, "mail");
    for wanted in [
        "To: ada@host.example\n",
        &format!("Subject: Tutti job {job} (x?) completed\n"),
        "\nAuto-Submitted: auto-generated\n",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    // The site's default, to the owner.
    instance.tutti(&["params", "notify_default=fail"]).expect(0);
    instance.submit(&["-o", "/dev/null", "true"]);
    instance.submit(&["-o", "/dev/null", "--notify", "none", "false"]);
    instance.submit(&["-o", "/dev/null", "false"]);
    eventually("a second mail", || (text(&instance, "args").lines().count() == 2).then_some(()));
    let owner = crate::harness::own_name();
    assert!(text(&instance, "args").ends_with(&format!("-- {owner}\n")));
    let said = || text(&instance, "mail").contains("failed, exit code 1").then_some(());
    eventually("the text of the mail", said);
}

#[test]
fn a_webhook_is_signed_and_retried_and_none_is_lost_over_restarts() {
    let instance = Instance::new().up();
    fs::write(instance.work.join("key"), format!("{KEY}\n")).unwrap();
    let server = Server::start(&[500, 204]);
    let hook = ["-o", "/dev/null", "--notify-webhook", &server.url, "--notify-key", "key"];
    let first = instance.submit(&[&hook[..], &["true"]].concat());
    let requests = server.wait_for(2);
    requests.iter().for_each(|request| is_signed(request));
    assert_eq!(body(&requests[0])["job"], first);
    crate::schemas::check_named("notification", &body(&requests[0]));
    let deliveries = [0, 1].map(|at| header(&requests[at], "X-Tutti-Delivery"));
    assert_eq!(deliveries[0], deliveries[1], "the same, tried again");
    // The key is no part of the event.
    let events = instance.tutti(&["events", "--only", "job_notification"]).expect(0).text();
    assert!(events.contains(&server.url) && !events.contains("key"), "{events}");
    let page = "docs/reference/events.schema.json";
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let schema: Value = serde_json::from_str(&fs::read_to_string(page).unwrap()).unwrap();
    let of_event = &schema["$defs"]["job_notification"];
    crate::show::check(&schema, of_event, &lines(&events)[0], "job_notification");
    // Killed before it knows of the answer, the notifier would deliver it again.
    let delivered = format!("notification of job {first} by webhook delivered");
    eventually(&delivered, || instance.log().contains(&delivered).then_some(()));
    // The controller, then the notifier, are killed while jobs wait.
    let nap = [&hook[..], &["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"]].concat();
    let second = instance.submit(&nap);
    instance.wait_for_state(second, "running");
    kill_daemon(&instance, "controller");
    kill_daemon(&instance, "notifier");
    fs::write(instance.work.join("go"), "").unwrap();
    let requests = server.wait_for(3);
    assert_eq!(body(&requests[2])["job"], second);
    // What was delivered before is not delivered again.
    let third = instance.submit(&[&hook[..], &["true"]].concat());
    let requests = server.wait_for(4);
    assert_eq!((body(&requests[3])["job"].clone(), requests.len()), (third.into(), 4));
}

#[test]
fn a_webhook_that_fails_is_given_up_and_a_user_has_a_bound() {
    let instance = Instance::new().up();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", free.local_addr().unwrap());
    drop(free);
    instance.tutti(&["params", "notify_tries=2", "notify_per_user=2"]).expect(0);
    let hook = ["-o", "/dev/null", "--notify-webhook", &url, "true"];
    let jobs = [(); 3].map(|()| instance.submit(&hook));
    let says = |text: String| {
        eventually(&text, || instance.log().contains(&text).then_some(()));
    };
    says(format!("notification of job {} of ", jobs[2]));
    says("by webhook is given up: ".into());
    says(format!("job {} of {} by webhook is given up", jobs[0], crate::harness::own_name()));
    let log = instance.log();
    assert!(log.contains("outstanding already"), "{log}");
    assert!(log.contains("try 2 of 2") && log.contains("T088"), "{log}");
    // A server that never answers holds up no one else, and a command has its time.
    instance.tutti(&["params", "notify_time=1s", "notify_tries=1", "notify_per_user=9"]).expect(0);
    kill_daemon(&instance, "notifier");
    let nap = format!("sleep {}", instance.nap);
    instance.submit(&["-o", "/dev/null", "--notify-command", &nap, "true"]);
    says("it took too long and was ended".into());
    eventually("the end of the command", || instance.nappers().is_empty().then_some(()));
    // The notifier does not keep an instance that is not used.
    instance.tutti(&["params", "idle_exit=100ms"]).expect(0);
    eventually("its end", || (!instance.dir.exists()).then_some(()));
}

/// Takes requests over TLS: writes `try` for each connection, and the body of each request.
const TLS_SERVER: &str = r#"
import http.server, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1] + ".pem", sys.argv[1] + ".key")
def note(text):
    with open(sys.argv[1] + ".seen", "a") as seen:
        seen.write(text + "\n")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        note(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()
class Server(http.server.HTTPServer):
    def get_request(self):
        stream, address = self.socket.accept()
        note("try")
        return context.wrap_socket(stream, server_side=True), address
server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// Makes an authority `ca`, and certificates of it and of another one for these names.
const CERTIFICATES: &str = "set -e
key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
for ca in ca stranger; do
    openssl req -x509 $key -keyout $ca.key -out $ca.pem -days 2 -subj /CN=$ca
done
sign() {
    openssl req $key -keyout $1.key -out $1.csr -subj /CN=$1
    echo subjectAltName=$3 > $1.ext
    openssl x509 -req -in $1.csr -CA $2.pem -CAkey $2.key -CAcreateserial -days 2 -extfile $1.ext -out $1.pem
}
sign good ca IP:127.0.0.1
sign misnamed ca DNS:elsewhere.example
sign untrusted stranger IP:127.0.0.1
";

#[test]
fn a_webhook_over_https_needs_a_trusted_certificate_for_the_hosts_name() {
    let instance = Instance::new();
    let shell = |line: &str, words: &[&str]| {
        let mut command = std::process::Command::new(line);
        command.args(words).current_dir(&instance.work);
        command
    };
    Running::start(shell("sh", &["-c", CERTIFICATES])).wait().expect(0);
    let mut up = instance.command(&["up"]);
    up.env("SSL_CERT_FILE", path(&instance, "ca.pem"));
    Running::start(up).wait().expect(0);
    instance.tutti(&["params", "notify_tries=2"]).expect(0);
    let submit = |name: &str| {
        let server = Running::start(shell("python3", &["-c", TLS_SERVER, name]));
        server.wait_for("\n");
        let url = format!("https://127.0.0.1:{}/", server.out().trim());
        (server, instance.submit(&["-o", "/dev/null", "--notify-webhook", &url, "true"]))
    };
    let seen = |name: &str| text(&instance, &format!("{name}.seen"));
    let (_good, job) = submit("good");
    eventually("the message", || (lines(&seen("good")).len() == 1).then_some(()));
    assert_eq!(lines(&seen("good"))[0]["job"], job);
    for (name, why) in [("misnamed", "not valid for name"), ("untrusted", "UnknownIssuer")] {
        let (_server, job) = submit(name);
        let given_up =
            format!("job {job} of {} by webhook is given up", crate::harness::own_name());
        eventually(&given_up, || instance.log().contains(&given_up).then_some(()));
        let log = instance.log();
        let said: Vec<&str> = log.lines().filter(|line| line.contains(&given_up)).collect();
        assert!(said[0].contains("certificate") && said[0].contains(why), "{said:?}");
        assert_eq!(seen(name), "try\ntry\n", "two tries, and no message");
    }
}

#[test]
fn what_cannot_be_delivered_is_refused_at_submit() {
    let instance = Instance::new().up();
    let refused = |options: &[&str], code: i32, says: &str| {
        let words = [&["submit", "-o", "/dev/null"], options, &["true"]].concat();
        instance.tutti(&words).expect(code).says(says);
    };
    for url in
        ["file:///etc/passwd", "http://user:pw@host/", "http://h/\r\nX: y", "host", "http://"]
    {
        refused(&["--notify-webhook", url], 2, "invalid webhook");
    }
    for address in ["-t", "a b", "a,b", "|sh", "a@-h"] {
        refused(&[&format!("--notify-mail={address}")], 2, "invalid mail address");
    }
    refused(&["--notify-command", " "], 2, "the command is empty");
    refused(&["--notify-command", &"x".repeat(2000)], 1, "put what is long into a script");
    refused(&["--notify", "often"], 2, "none of: start, end, fail, all, none");
    fs::write(instance.work.join("key"), "short").unwrap();
    refused(&["--notify-webhook", "http://h/", "--notify-key", "key"], 1, "it may have 16 to 128");
    instance.tutti(&["params", "notify_commands=off", "notify_webhooks=off"]).expect(0);
    refused(&["--notify-command", "true"], 1, "notify_commands=off");
    refused(&["--notify-webhook", "http://h/"], 1, "notify_webhooks=off");
    let line = format!("{} run --notify end true", instance.program.display());
    instance.tutti(&["run", "sh", "-c", &line]).expect(125).says("--notify is for a job");
    // No process runs for what no job asks.
    assert_eq!(instance.daemon_now("notifier"), None);
}
