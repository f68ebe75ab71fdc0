use flame_abi::LinkType;

/// Returns the name of a link type in the registry at tcpdump.org/linktypes.html.
pub fn link_name(link: LinkType) -> &'static str {
    let found = NAMES.binary_search_by_key(&link.0, |(number, _)| *number);
    found.map_or("not in the registry", |at| NAMES[at].1)
}

/// The names by number. Types that only some systems write into files have names of our own.
#[rustfmt::skip]
const NAMES: &[(u16, &str)] = &[
    (0, "null"), (1, "Ethernet"), (2, "experimental Ethernet"), (3, "AX.25"), (4, "ProNET"), (5, "Chaosnet"),
    (6, "802.5 token ring"), (7, "ARCNET"), (8, "SLIP"), (9, "PPP"), (10, "FDDI"), (12, "raw IP"),
    (14, "raw IP"), (50, "PPP in HDLC framing"), (51, "PPPoE"), (99, "Symantec firewall"),
    (100, "RFC 1483 ATM"), (101, "raw IP"), (104, "Cisco HDLC"), (105, "802.11"),
    (106, "classical IP over ATM"), (107, "frame relay"), (108, "OpenBSD loopback"), (109, "OpenBSD ENC"),
    (113, "Linux cooked"), (114, "LocalTalk"), (117, "PFLOG"), (119, "802.11 with Prism header"),
    (122, "IP over Fibre Channel"), (123, "SunATM"), (127, "802.11 with radiotap"), (129, "ARCNET on Linux"),
    (130, "Juniper MLPPP"), (131, "Juniper MLFR"), (132, "Juniper ES"), (133, "Juniper GGSN"),
    (134, "Juniper MFR"), (135, "Juniper ATM2"), (136, "Juniper services"), (137, "Juniper ATM1"),
    (138, "Apple IP over IEEE 1394"), (139, "MTP2 with pseudo-header"), (140, "MTP2"), (141, "MTP3"),
    (142, "SCCP"), (143, "DOCSIS"), (144, "Linux IrDA"), (147, "private use"), (148, "private use"),
    (149, "private use"), (150, "private use"), (151, "private use"), (152, "private use"),
    (153, "private use"), (154, "private use"), (155, "private use"), (156, "private use"),
    (157, "private use"), (158, "private use"), (159, "private use"), (160, "private use"),
    (161, "private use"), (162, "private use"), (163, "802.11 with AVS header"),
    (164, "Juniper monitoring"), (165, "BACnet MS/TP"), (166, "PPP of pppd, with direction"),
    (167, "Juniper PPPoE"), (168, "Juniper PPPoE over ATM"), (169, "GPRS LLC"), (170, "GFP-T"), (171, "GFP-F"),
    (174, "Juniper PIC peer"), (175, "Endace ERF Ethernet"), (176, "Endace ERF PoS"), (177, "Linux LAPD"),
    (178, "Juniper Ethernet"), (179, "Juniper PPP"), (180, "Juniper frame relay"), (181, "Juniper Cisco HDLC"),
    (182, "MFR"), (183, "Juniper voice"), (184, "FRF.8"), (185, "FRF.12"), (186, "USB of FreeBSD"),
    (187, "Bluetooth HCI UART"), (188, "802.16 MAC"), (189, "USB of Linux"), (190, "CAN 2.0B"),
    (191, "802.15.4 of Linux"), (192, "PPI"), (193, "802.16 with radiotap"), (194, "Juniper integrated services"),
    (195, "802.15.4 with FCS"), (196, "SITA"), (197, "Endace ERF"), (198, "RAIF1"), (199, "IPMB"),
    (200, "Juniper secure tunnel"), (201, "Bluetooth HCI UART with direction"), (202, "AX.25 KISS"),
    (203, "LAPD"), (204, "PPP with direction"), (205, "Cisco HDLC with direction"),
    (206, "frame relay with direction"), (207, "LAPB with direction"), (209, "IPMB of Linux"),
    (210, "FlexRay"), (211, "MOST"), (212, "LIN"), (213, "X2E serial"), (214, "X2E Xoraya"),
    (215, "802.15.4 with PHY header"), (216, "Linux evdev"), (217, "GSM Um"), (218, "GSM Abis"), (219, "MPLS"),
    (220, "USB of Linux, padded"), (221, "DECT"), (222, "AOS"), (223, "WirelessHART"), (224, "Fibre Channel FC-2"),
    (225, "Fibre Channel FC-2 with delimiters"), (226, "Solaris ipnet"), (227, "CAN of Linux"), (228, "raw IPv4"),
    (229, "raw IPv6"), (230, "802.15.4 without FCS"), (231, "D-Bus"), (232, "Juniper VS"),
    (233, "Juniper SRX end to end"), (234, "Juniper Fibre Channel"), (235, "DVB-CI"), (236, "MUX27010"),
    (237, "STANAG 5066"), (238, "Juniper ATM CEMIC"), (239, "NFLOG"), (240, "Hilscher netANALYZER"),
    (241, "Hilscher netANALYZER, transparent"), (242, "IP over InfiniBand"), (243, "MPEG-2 transport stream"),
    (244, "NG40"), (245, "NFC LLCP"), (246, "PFSYNC"), (247, "InfiniBand"), (248, "SCTP"), (249, "USBPcap"),
    (250, "RTAC serial"), (251, "Bluetooth low energy"), (252, "Wireshark upper PDU"), (253, "Linux netlink"),
    (254, "Bluetooth of Linux monitor"), (255, "Bluetooth BR/EDR baseband"),
    (256, "Bluetooth low energy with PHY header"), (257, "PROFIBUS"), (258, "PKTAP"), (259, "Ethernet PON"),
    (260, "IPMI HPM.2"), (261, "Z-Wave R1 and R2"), (262, "Z-Wave R3"), (263, "WattStopper DLM"),
    (264, "ISO 14443"), (265, "RDS"), (266, "USB of Darwin"), (267, "OpenFlow"), (268, "SDLC"), (269, "TI LLN sniffer"),
    (270, "LoRaTap"), (271, "vsock"), (272, "Nordic BLE sniffer"), (273, "DOCSIS 3.1 XRA"), (274, "Ethernet mPacket"),
    (275, "DisplayPort AUX"), (276, "Linux cooked v2"), (277, "SerCoS monitor"), (278, "OpenVizsla"),
    (279, "Elektrobit HSCR"), (280, "VPP graph dispatch"), (281, "Broadcom switch tag"),
    (282, "Broadcom switch tag, prepended"), (283, "802.15.4 TAP"), (284, "Marvell DSA"), (285, "Marvell EDSA"),
    (286, "ELEE"), (287, "Z-Wave serial"), (288, "USB 2.0"), (289, "ATSC ALP"), (290, "event tracing for Windows"),
    (291, "Hilscher netANALYZER NG"), (292, "ZBOSS NCP"), (293, "USB 2.0 low speed"), (294, "USB 2.0 full speed"),
    (295, "USB 2.0 high speed"), (296, "Auerswald log"), (297, "Z-Wave TAP"), (298, "Silicon Labs debug channel"),
    (299, "FIRA UCI"), (300, "MDB"), (301, "DECT NR+"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_those_of_the_registry() {
        assert!(NAMES.is_sorted_by_key(|(number, _)| number));
        let name = |number| link_name(LinkType(number));
        assert_eq!(
            [name(197), name(201), name(194)],
            ["Endace ERF", "Bluetooth HCI UART with direction", "Juniper integrated services"]
        );
        assert_eq!(name(400), "not in the registry");
        assert!(LinkType::DECODED.into_iter().all(|link| link_name(link) != "not in the registry"));
    }
}
