//! The files of the page, which are part of the program.

use crate::answer::answer;
use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Response, StatusCode};
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

/// A file of the page.
pub(crate) struct File {
    /// Its path below the page's; empty for the page itself.
    pub(crate) path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! file {
    ($path:literal, $kind:expr, $name:literal) => {
        File { path: $path, kind: $kind, bytes: include_bytes!(concat!("page/", $name)) }
    };
}

/// All of them.
pub(crate) const FILES: &[File] = &[
    file!("", HTML, "index.html"),
    file!("style.css", "text/css; charset=utf-8", "style.css"),
    file!("icon.svg", "image/svg+xml", "icon.svg"),
    file!("app.js", SCRIPT, "app.js"),
    file!("dom.js", SCRIPT, "dom.js"),
    file!("data.js", SCRIPT, "data.js"),
    file!("matrix.js", SCRIPT, "matrix.js"),
    file!("lists.js", SCRIPT, "lists.js"),
    file!("job.js", SCRIPT, "job.js"),
    file!("submit.js", SCRIPT, "submit.js"),
    file!("gantt.js", SCRIPT, "gantt.js"),
    file!("reports.js", SCRIPT, "reports.js"),
];

/// A file, or that the browser has it.
pub(crate) fn file(file: &File, headers: &HeaderMap) -> Response<Body> {
    let hash = digest(&SHA256, file.bytes);
    let tag = format!("\"{}\"", HEXLOWER.encode(&hash.as_ref()[..8]));
    let known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let mut response = match known {
        Some(known) if known == tag => answer(StatusCode::NOT_MODIFIED, file.kind, Body::empty()),
        _ => answer(StatusCode::OK, file.kind, file.bytes),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// The page for browsers without a session.
pub(crate) fn no_session() -> Response<Body> {
    answer(StatusCode::UNAUTHORIZED, HTML, include_str!("page/no-session.html"))
}

/// A page that leads to the page itself. A redirect would not do: a browser that followed a link
/// from elsewhere sends no cookie behind one. It names the icon, or browsers ask for one that is
/// not there.
pub(crate) fn forward(path: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Tutti</title>\
         <link rel=\"icon\" href=\"{path}/icon.svg\" type=\"image/svg+xml\">\
         <meta http-equiv=\"refresh\" content=\"0;url={path}/\"><p><a href=\"{path}/\">Tutti</a></p></html>"
    )
}

/// The type of that page.
pub(crate) const FORWARD_KIND: &str = HTML;

#[cfg(test)]
mod tests {
    use super::FILES;

    #[test]
    fn the_first_load_is_below_100_kb_and_names_no_other_host() {
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes < 100_000, "{bytes}");
        for file in FILES {
            let text = String::from_utf8_lossy(file.bytes);
            let links = text.replace("http://www.w3.org/", "");
            let is_own = !links.contains("http:") && !links.contains("https:");
            assert!(is_own && !links.contains("\"//"), "{} names another host", file.path);
            assert!(!text.contains("innerHTML") && !text.contains("eval("), "{}", file.path);
        }
    }
}
