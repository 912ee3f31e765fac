//! The body of a response: that of the inner service, or a text of the layer.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response that passed the layer.
    pub struct LimitBody<B> {
        #[pin]
        content: Content<B>,
    }
}

pin_project! {
    #[project = ContentPinned]
    enum Content<B> {
        /// Of the inner service.
        Inner { #[pin] body: B },
        /// A text that is still to be sent, or none.
        Text { text: Option<String> },
    }
}

impl<B> LimitBody<B> {
    pub(crate) fn inner(body: B) -> LimitBody<B> {
        LimitBody { content: Content::Inner { body } }
    }

    /// A text. An empty one is no body.
    pub(crate) fn text(text: String) -> LimitBody<B> {
        LimitBody { content: Content::Text { text: Some(text).filter(|text| !text.is_empty()) } }
    }
}

impl<B> Body for LimitBody<B>
where
    B: Body,
    B::Data: From<Vec<u8>>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().content.project() {
            ContentPinned::Inner { body } => body.poll_frame(cx),
            ContentPinned::Text { text } => {
                Poll::Ready(text.take().map(|text| Ok(Frame::data(text.into_bytes().into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Inner { body } => body.is_end_stream(),
            Content::Text { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Inner { body } => body.size_hint(),
            Content::Text { text } => SizeHint::with_exact(text.as_ref().map_or(0, String::len) as u64),
        }
    }
}
