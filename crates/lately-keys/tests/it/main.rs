//! Templates and addresses of any text.

mod forwarded;
mod template;

use proptest::prelude::*;

proptest! {
    #[test]
    fn a_client_cannot_choose_its_address(
        header in r"((10\.0\.0\.[0-9]|192\.0\.2\.[0-9]|\[?2001:db8::[0-9]\]?(:80)?|::ffff:10\.0\.0\.2|x|fe80::1%e|)[, \n]{0,2}){0,6}"
    ) {
        forwarded::check(header.as_bytes());
    }

    #[test]
    fn a_template_is_its_parts(text in r"([{}]|ip|/|[0-9]{1,3}|é|\.| |\*){0,12}") {
        template::check(&text);
    }
}
