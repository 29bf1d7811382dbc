//! The output of a job, as a stream of bytes.

use crate::app::App;
use crate::limits::{OUTPUT_PAUSE, PIECES_MAX, WRITE_TIME};
use crate::routes::Piece;
use crate::source::{Answer, Output, OutputQuery};
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
) -> Answer<mpsc::Receiver<Piece>> {
    let permit = app.reader()?;
    let output = app.ask(move |source| source.output(job, query)).await?;
    let (to, from) = mpsc::channel(PIECES_MAX);
    tokio::spawn(async move {
        let _permit = permit;
        if let Err(failure) = send_all(&app, output, follow, &to).await {
            let _ = timeout(WRITE_TIME, to.send(Err(std::io::Error::other(failure.text)))).await;
        }
    });
    Ok(from)
}

/// Sends what there is and, with `follow`, what comes; no more if the reader went away.
///
/// # Errors
/// If the output can't be read any more, or no instance answers.
async fn send_all(
    app: &App,
    mut output: Box<dyn Output>,
    follow: bool,
    to: &mpsc::Sender<Piece>,
) -> Answer<()> {
    let (mut looks, mut ended) = (0_u32, !follow);
    loop {
        let found;
        (output, found) = look(app, output).await?;
        if let Some(bytes) = found {
            match timeout(WRITE_TIME, to.send(Ok(bytes.into()))).await {
                Ok(Ok(())) => continue,
                _ => return Ok(()),
            }
        }
        // All was written before the end was reported, and is read behind it.
        if ended || to.is_closed() {
            return Ok(());
        }
        if looks.is_multiple_of(LOOKS) {
            (output, ended) = has_ended(app, output).await?;
        }
        looks = looks.wrapping_add(1);
        if !ended {
            sleep(OUTPUT_PAUSE).await;
        }
    }
}

type Found = (Box<dyn Output>, Option<Vec<u8>>);

async fn look(app: &App, mut output: Box<dyn Output>) -> Answer<Found> {
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
