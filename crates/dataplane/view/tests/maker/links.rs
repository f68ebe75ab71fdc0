//! Packets of other link types than Ethernet.

use super::Maker;
use flame_abi::LinkType;
use flame_plan::Field;

/// The link types of generated packets.
pub const LINKS: [LinkType; 9] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::PPP_HDLC,
    LinkType::C_HDLC,
    LinkType::IEEE802_11,
    LinkType::IEEE802_11_RADIOTAP,
    LinkType::NFLOG,
    LinkType::DSA_TAG_DSA,
    LinkType::LINUX_SLL,
];

impl Maker<'_> {
    /// Generates a packet of a link type.
    pub fn packet(&mut self, link: LinkType) -> Vec<u8> {
        self.endless = false;
        match link {
            LinkType::RAW => self.ip(0),
            LinkType::PPP_HDLC => {
                let head = [&[0xff, 3, 0, 0x21][..], &[0x21], &[0, 0x21]][self.choose(3) as usize];
                [head, &self.ipv4(0)].concat()
            }
            LinkType::C_HDLC => [vec![0x0f, 0, 8, 0], self.ipv4(0)].concat(),
            LinkType::IEEE802_11 => self.wireless(),
            LinkType::IEEE802_11_RADIOTAP => {
                let is_hidden = self.hidden.notes;
                let time = self.draw(8, is_hidden);
                [vec![0, 0, 16, 0, 1, 0, 0, 0], time, self.wireless()].concat()
            }
            LinkType::NFLOG => {
                let is_hidden = self.hidden.notes;
                let (time, number) = (self.draw(16, is_hidden), self.draw(4, is_hidden));
                let packet = self.ipv4(0);
                let [low, high] = (4 + packet.len() as u16).to_le_bytes();
                let head = [vec![2, 0, 0, 0, 20, 0, 3, 0], time, vec![8, 0, 12, 0], number].concat();
                [head, vec![low, high, 9, 0], packet].concat()
            }
            LinkType::DSA_TAG_DSA => {
                let macs = self.macs();
                [macs, self.draw(4, false), vec![8, 0], self.ipv4(0)].concat()
            }
            LinkType::LINUX_SLL => {
                let address = self.mac(Field::MacSrc, &[Field::IpSrc]);
                [vec![0, 0, 0, 1, 0, 6], address, vec![0, 0, 8, 0], self.ipv4(0)].concat()
            }
            _ => self.frame(),
        }
    }

    fn wireless(&mut self) -> Vec<u8> {
        let any = if self.transforms.contains_key(&Field::MacDst) { Field::MacDst } else { Field::MacSrc };
        // A beacon holds no packet, and no data of a known form.
        if self.choose(6) == 0 {
            let macs = [self.macs(), self.mac(any, &[Field::IpSrc, Field::IpDst])].concat();
            let is_hidden = self.hidden.opaque;
            return [vec![0x80, 0, 0, 0], macs, vec![0, 0], self.draw(20, is_hidden)].concat();
        }
        let macs = [self.macs(), self.mac(any, &[Field::IpSrc, Field::IpDst])].concat();
        let llc = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
        if self.choose(3) > 0 {
            return [&[8, 0, 0, 0][..], &macs, &[0, 0], &llc, &self.ipv4(0)].concat();
        }
        // One of several frames, with addresses of its own.
        let inner = [self.macs(), vec![0, 0], llc.to_vec(), self.ipv4(0)].concat();
        [&[0x88, 0, 0, 0][..], &macs, &[0, 0, 0x80, 0], &inner].concat()
    }
}
