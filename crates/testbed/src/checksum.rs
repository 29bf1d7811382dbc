//! Checksums of TCP and UDP in frames of Ethernet.
//!
//! Between network namespaces the kernel leaves them out: it knows that nothing can happen to a
//! packet on the way. One that comes back from a program is not trusted like that.

/// Where IPv4 begins in a frame, and the marks that it is that.
const IP: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [8, 0];

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Writes the checksum into a frame with a whole packet of TCP or UDP over IPv4. Others stay as
/// they are.
pub(crate) fn complete(frame: &mut [u8]) {
    let Some((segment, at, start)) = segment_of(frame) else { return };
    segment[at..at + 2].fill(0);
    let mut sum = start;
    for pair in segment.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = (!sum).to_be_bytes();
    // Of UDP, none is said by zero.
    let sum = if [high, low] == [0; 2] { [0xff; 2] } else { [high, low] };
    segment[at..at + 2].copy_from_slice(&sum);
}

/// The TCP or UDP part of a frame, where its checksum is, and what the addresses add to it.
fn segment_of(frame: &mut [u8]) -> Option<(&mut [u8], usize, u32)> {
    if frame.get(12..14)? != ETHERTYPE_IPV4 {
        return None;
    }
    let packet = frame.get_mut(IP..)?;
    let header = usize::from(packet.first()? & 0xf) * 4;
    let length = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    // A part of a packet has not all that the checksum is of.
    let is_part = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff != 0;
    let kind = *packet.get(9)?;
    let addresses = packet.get(12..20)?;
    let pairs = addresses.chunks_exact(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])));
    let addresses: u32 = pairs.sum();
    let segment = packet.get_mut(header..length)?;
    let at = match kind {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let start = addresses + u32::from(kind) + u32::try_from(segment.len()).ok()?;
    (!is_part && header >= 20 && segment.len() >= at + 2).then_some((segment, at, start))
}

#[cfg(test)]
mod tests {
    use super::complete;

    /// A packet of UDP, five bytes, from 10.77.0.1:1000 to 10.77.0.2:2000.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0]);
        frame.extend([0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
        frame.extend([0x03, 0xe8, 0x07, 0xd0, 0, 13, 0xaa, 0xaa, b'h', b'e', b'l', b'l', b'o']);
        frame
    }

    #[test]
    fn a_checksum_is_that_of_addresses_and_all_bytes() {
        let mut frame = frame();
        // The end of Ethernet's shortest frames is none of the packet.
        frame.extend([0xff; 7]);
        let before = frame.clone();
        complete(&mut frame);
        // By hand: 0a4d+0001+0a4d+0002 + 0011+000d + 03e8+07d0+000d + 6865+6c6c+6f00 = 16451, so
        // 6452.
        assert_eq!(frame[40..42], (!0x6452_u16).to_be_bytes());
        assert_eq!((&frame[..40], &frame[42..]), (&before[..40], &before[42..]));
    }

    #[test]
    fn what_is_no_whole_packet_stays_as_it_is() {
        let whole = frame();
        for (at, byte) in [(12, 9), (14, 0x41), (20, 0x20), (21, 1), (23, 1), (16, 1)] {
            let mut other = whole.clone();
            other[at] = byte;
            let before = other.clone();
            complete(&mut other);
            assert_eq!(other, before, "byte {at}");
        }
        for length in 0..whole.len() {
            let mut part = whole[..length].to_vec();
            complete(&mut part);
            assert_eq!(part, whole[..length]);
        }
    }
}
