//! The output of a job, as a stream of bytes.

use crate::app::App;
use crate::limits::{OUTPUT_PAUSE, PIECES_MAX, WRITE_TIME};
use crate::source::{Answer, Output, OutputQuery};
use axum::body::Bytes;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// How many looks at the output there are for one at whether the job has ended.
const LOOKS: u32 = 4;

/// Begins a stream of a job's output; with `follow`, until the job has ended.
///
/// # Errors
/// If there are too many readers, or there is no output to be seen.
pub(crate) async fn stream(
    app: Arc<App>,
    job: u64,
    query: OutputQuery,
    follow: bool,
) -> Answer<mpsc::Receiver<Bytes>> {
    let permit = app.reader()?;
    let output = app.ask(move |source| source.output(job, query)).await?;
    let (to, from) = mpsc::channel(PIECES_MAX);
    tokio::spawn(async move {
        let _permit = permit;
        send_all(&app, output, follow, &to).await
    });
    Ok(from)
}

/// Sends what there is and, with `follow`, what comes; nothing if the reader went away.
async fn send_all(
    app: &App,
    mut output: Box<dyn Output>,
    follow: bool,
    to: &mpsc::Sender<Bytes>,
) -> Option<()> {
    let (mut looks, mut ended) = (0_u32, !follow);
    loop {
        let piece;
        (output, piece) = look(app, output).await.ok()?;
        if let Some(piece) = piece {
            timeout(WRITE_TIME, to.send(piece.into())).await.ok()?.ok()?;
            continue;
        }
        // All was written before the end was reported, and is read behind it.
        if ended {
            return Some(());
        }
        if to.is_closed() {
            return None;
        }
        if looks.is_multiple_of(LOOKS) {
            (output, ended) = has_ended(app, output).await.ok()?;
        }
        looks = looks.wrapping_add(1);
        if !ended {
            sleep(OUTPUT_PAUSE).await;
        }
    }
}

type Piece = (Box<dyn Output>, Option<Vec<u8>>);

async fn look(app: &App, mut output: Box<dyn Output>) -> Answer<Piece> {
    app.in_thread(move || {
        let piece = output.next()?;
        Ok((output, piece))
    })
    .await
}

async fn has_ended(app: &App, mut output: Box<dyn Output>) -> Answer<(Box<dyn Output>, bool)> {
    app.in_thread(move || {
        let ended = output.has_ended()?;
        Ok((output, ended))
    })
    .await
}
