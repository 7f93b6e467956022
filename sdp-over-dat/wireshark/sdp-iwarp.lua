-- A Wireshark dissector of the Sockets Direct Protocol (SDP) over iWARP, for Wireshark 3.6 and later.
--
--   tshark -X lua_script:sdp-iwarp.lua -o tcp.try_heuristic_first:TRUE \
--       -o tcp.reassemble_out_of_order:TRUE \
--       -o iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE -r capture.pcapng -Y sdp_iwarp
--
-- Wireshark itself dissects MPA, DDP and RDMAP. It offers the payload of RDMAP messages to the heuristic
-- dissectors of the list "iwarp_ddp_rdmap", and this dissector is one of them. It offers the private data of
-- MPA to no dissector, so a postdissector reads Hello and HelloAck from the field iwarp_mpa.privatedata.
--
-- Wireshark's reassembly of Sends offers only the first Send of each packet. Without it, each DDP segment is
-- offered, and this dissector reads the header from the first segment of a message.
--
-- All fields are big-endian. "Source" is the end that sends the user data in question, "sink" the end that
-- receives it.

local BASE_LEN = 16
local HELLO_LEN = 92
local HELLO_ACK_LEN = 196

local MID = {
    HELLO = 0x00, HELLO_ACK = 0x01, RDMA_RD_COMPL = 0x06, SINK_AVAIL = 0xfd, SRC_AVAIL = 0xfe, DATA = 0xff,
}

-- Names of the messages, by MID.
local NAMES = {
    [0x00] = "Hello", [0x01] = "HelloAck", [0x02] = "DisConn", [0x03] = "AbortConn", [0x04] = "SendSm",
    [0x05] = "RdmaWrCompl", [0x06] = "RdmaRdCompl", [0x07] = "ModeChange", [0x08] = "SrcAvailCancel",
    [0x09] = "SinkAvailCancel", [0x0a] = "SinkCancelAck", [0x0b] = "ChRcvBuf", [0x0c] = "ChRcvBufAck",
    [0x0d] = "SuspComm", [0x0e] = "SuspCommAck", [0xfd] = "SinkAvail", [0xfe] = "SrcAvail", [0xff] = "Data",
}

-- Lengths of the extended headers in bytes, by MID; 0 for all others.
local EXTENDED = {
    [0x00] = 76, [0x01] = 180, [0x05] = 4, [0x06] = 4, [0x07] = 4, [0x0b] = 4, [0x0c] = 4, [0x0d] = 8,
    [0xfd] = 20, [0xfe] = 16,
}

local HALVES = { [0] = "receive half of the receiver, by its source", [1] = "send half of the receiver, by its sink" }
local MODES = { [0] = "buffered", [1] = "combined", [2] = "pipelined" }
local FAMILIES = { [4] = "IPv4", [6] = "IPv6" }

local sdp = Proto("sdp_iwarp", "Sockets Direct Protocol over iWARP")

local f = {
    mid = ProtoField.uint8("sdp_iwarp.mid", "MID", base.HEX, NAMES),
    flags = ProtoField.uint8("sdp_iwarp.flags", "Flags", base.HEX),
    oob_pres = ProtoField.bool("sdp_iwarp.flags.oob_pres", "OOB_PRES: the last byte is urgent", 8, nil, 0x01),
    oob_pend = ProtoField.bool("sdp_iwarp.flags.oob_pend", "OOB_PEND: urgent data is pending", 8, nil, 0x02),
    req_pipe = ProtoField.bool("sdp_iwarp.flags.req_pipe", "REQ_PIPE: pipelined mode is requested", 8, nil, 0x04),
    reserved_flags = ProtoField.uint8("sdp_iwarp.flags.reserved", "Reserved", base.HEX, nil, 0xf8),
    bufs = ProtoField.uint16("sdp_iwarp.bufs", "Bufs", base.DEC),
    len = ProtoField.uint32("sdp_iwarp.len", "Len", base.DEC),
    mseq = ProtoField.uint32("sdp_iwarp.mseq", "MSeq", base.DEC),
    mseqack = ProtoField.uint32("sdp_iwarp.mseqack", "MSeqAck", base.DEC),

    major = ProtoField.uint8("sdp_iwarp.hello.majv", "MajV", base.DEC, nil, 0xf0),
    minor = ProtoField.uint8("sdp_iwarp.hello.minv", "MinV", base.DEC, nil, 0x0f),
    family = ProtoField.uint8("sdp_iwarp.hello.ipv", "IPV", base.DEC, FAMILIES, 0xf0),
    cap = ProtoField.uint8("sdp_iwarp.hello.cap", "Cap", base.HEX, nil, 0x0f),
    cap_invalidate = ProtoField.bool(
        "sdp_iwarp.hello.cap.invalidate", "Can receive Send with Invalidate", 8, nil, 0x01),
    cap_extended = ProtoField.bool(
        "sdp_iwarp.hello.cap.ext_max_adverts", "ExtMaxAdverts is present", 8, nil, 0x02),
    max_adverts = ProtoField.uint8("sdp_iwarp.hello.max_adverts", "MaxAdverts", base.DEC),
    wanted_size = ProtoField.uint32("sdp_iwarp.hello.des_rem_rcv_sz", "DesRemRcvSz", base.DEC),
    local_size = ProtoField.uint32("sdp_iwarp.hello.local_rcv_sz", "LocalRcvSz", base.DEC),
    port = ProtoField.uint16("sdp_iwarp.hello.local_port", "LocalPort", base.DEC),
    source4 = ProtoField.ipv4("sdp_iwarp.hello.src_ip", "SrcIP"),
    target4 = ProtoField.ipv4("sdp_iwarp.hello.dst_ip", "DstIP"),
    source6 = ProtoField.ipv6("sdp_iwarp.hello.src_ip6", "SrcIP"),
    target6 = ProtoField.ipv6("sdp_iwarp.hello.dst_ip6", "DstIP"),
    extended_adverts = ProtoField.uint16("sdp_iwarp.hello.ext_max_adverts", "ExtMaxAdverts", base.DEC),
    actual_size = ProtoField.uint32("sdp_iwarp.hello_ack.act_rcv_sz", "ActRcvSz", base.DEC),

    src_len = ProtoField.uint32("sdp_iwarp.src_avail.len", "Length of the source's memory", base.DEC),
    src_key = ProtoField.uint32("sdp_iwarp.src_avail.stag", "STag (R_Key)", base.HEX),
    src_address = ProtoField.uint64("sdp_iwarp.src_avail.to", "Tagged offset (VA)", base.HEX),
    sink_len = ProtoField.uint32("sdp_iwarp.sink_avail.len", "Length of the sink's memory", base.DEC),
    sink_key = ProtoField.uint32("sdp_iwarp.sink_avail.stag", "STag (R_Key)", base.HEX),
    sink_address = ProtoField.uint64("sdp_iwarp.sink_avail.to", "Tagged offset (VA)", base.HEX),
    non_discards = ProtoField.uint32("sdp_iwarp.sink_avail.non_discards", "NonDiscards", base.DEC),
    written = ProtoField.uint32("sdp_iwarp.rdma_wr_compl.bytes", "Bytes written", base.DEC),
    read = ProtoField.uint32("sdp_iwarp.rdma_rd_compl.bytes", "Bytes read", base.DEC),
    half = ProtoField.uint32("sdp_iwarp.mode_change.half", "Half", base.DEC, HALVES, 0x80000000),
    mode = ProtoField.uint32("sdp_iwarp.mode_change.mode", "Mode", base.DEC, MODES, 0x70000000),
    mode_reserved = ProtoField.uint32("sdp_iwarp.mode_change.reserved", "Reserved", base.HEX, nil, 0x0fffffff),
    wanted_buffer = ProtoField.uint32("sdp_iwarp.ch_rcv_buf.size", "Desired size of receive buffers", base.DEC),
    buffer = ProtoField.uint32("sdp_iwarp.ch_rcv_buf_ack.size", "Actual size of receive buffers", base.DEC),
    service = ProtoField.uint64("sdp_iwarp.susp_comm.service_id", "New service ID", base.HEX),

    payload = ProtoField.bytes("sdp_iwarp.payload", "Payload"),
    payload_len = ProtoField.uint32("sdp_iwarp.payload_len", "Payload length", base.DEC),
    urgent = ProtoField.uint8("sdp_iwarp.urgent", "Urgent byte", base.HEX),
}
sdp.fields = f

local e = {
    length = ProtoExpert.new("sdp_iwarp.expert.length", "Len is not the length of the message",
        expert.group.MALFORMED, expert.severity.ERROR),
    cut = ProtoExpert.new("sdp_iwarp.expert.cut", "The message ends inside its header",
        expert.group.MALFORMED, expert.severity.ERROR),
    kind = ProtoExpert.new("sdp_iwarp.expert.mid", "Not a message of an established connection",
        expert.group.PROTOCOL, expert.severity.ERROR),
    payload = ProtoExpert.new("sdp_iwarp.expert.payload", "Payload on a message that must not have any",
        expert.group.PROTOCOL, expert.severity.ERROR),
    flags = ProtoExpert.new("sdp_iwarp.expert.flags", "Undefined flags, or flags that this message may not have",
        expert.group.PROTOCOL, expert.severity.WARN),
    mode = ProtoExpert.new("sdp_iwarp.expert.mode", "An unknown mode, or reserved bits",
        expert.group.PROTOCOL, expert.severity.WARN),
}
sdp.experts = e

local opcode_field = Field.new("iwarp_rdma.opcode")
local offset_field = Field.new("iwarp_ddp.mo")
local last_flag_field = Field.new("iwarp_ddp.last_flag")
local ulpdu_field = Field.new("iwarp_mpa.ulpdulength")
local stream_field = Field.new("tcp.stream")
local private_data_field = Field.new("iwarp_mpa.privatedata")

-- The length of the header of an untagged DDP segment, RDMAP's control field included.
local DDP_LEN = 18

-- The TCP streams in which Hello or HelloAck was seen.
local streams = {}

function sdp.init()
    streams = {}
end

local function current_stream()
    local stream = stream_field()
    return stream and stream.value
end

-- The value of a field in the FPDU that is being dissected, which is the last one of the packet so far; nil if
-- Wireshark dissects the packet without a tree.
local function last_value(field)
    local all = { field() }
    local last = all[#all]
    return last and last.value
end

-- True for the operations Send, Send with Invalidate, and both with Solicited Event.
local function is_send()
    local opcode = last_value(opcode_field)
    return opcode == nil or (opcode >= 3 and opcode <= 6)
end

-- The position of the bytes in their message: true for the first and true for the last segment.
local function position(tvb)
    local ulpdu, offset = last_value(ulpdu_field), last_value(offset_field)
    if ulpdu == nil or offset == nil or tvb:reported_length_remaining() > ulpdu - DDP_LEN then
        return true, true
    end
    return offset == 0, last_value(last_flag_field) and true or false
end

local function carries_payload(mid)
    return mid == MID.DATA or mid == MID.SRC_AVAIL or mid == MID.SINK_AVAIL
end

-- True if the bytes have the form of a message, or of its beginning if `is_last` is false. Only this
-- distinguishes SDP from other protocols where no Hello was captured.
local function is_message(tvb, is_last)
    if tvb:captured_len() < BASE_LEN then
        return false
    end
    local mid, len = tvb(0, 1):uint(), tvb(4, 4):uint()
    local header = BASE_LEN + (EXTENDED[mid] or 0)
    local has_length = len == tvb:reported_length_remaining()
    if not is_last then
        has_length = len > tvb:reported_length_remaining()
    end
    return NAMES[mid] ~= nil and mid ~= MID.HELLO and mid ~= MID.HELLO_ACK
        and tvb(1, 1):uint() < 8 and has_length
        and (len == header or (len > header and carries_payload(mid)))
end

local function add_flags(tree, tvb, mid)
    local flags = tvb(1, 1)
    local item = tree:add(f.flags, flags)
    item:add(f.reserved_flags, flags)
    item:add(f.req_pipe, flags)
    item:add(f.oob_pend, flags)
    item:add(f.oob_pres, flags)
    local value = flags:uint()
    local req_pipe, oob_pres = math.floor(value / 4) % 2 == 1, value % 2 == 1
    local is_wrong = value > 7
        or (req_pipe and mid ~= MID.RDMA_RD_COMPL)
        or (oob_pres and mid ~= MID.DATA)
    if is_wrong then
        item:add_proto_expert_info(e.flags)
    end
    local names = {}
    if oob_pres then names[#names + 1] = "OOB_PRES" end
    if math.floor(value / 2) % 2 == 1 then names[#names + 1] = "OOB_PEND" end
    if req_pipe then names[#names + 1] = "REQ_PIPE" end
    return table.concat(names, ",")
end

local function add_base(tree, tvb)
    local mid = tvb(0, 1):uint()
    tree:add(f.mid, tvb(0, 1))
    local flags = add_flags(tree, tvb, mid)
    tree:add(f.bufs, tvb(2, 2))
    local len_item = tree:add(f.len, tvb(4, 4))
    tree:add(f.mseq, tvb(8, 4))
    tree:add(f.mseqack, tvb(12, 4))
    return len_item, flags
end

-- One function for each extended header: adds its fields, and returns a text for the column Info.
local extended = {}

extended[0x05] = function(tree, tvb)
    tree:add(f.written, tvb(16, 4))
    return tvb(16, 4):uint() .. " bytes written"
end

extended[0x06] = function(tree, tvb)
    tree:add(f.read, tvb(16, 4))
    return tvb(16, 4):uint() .. " bytes read"
end

extended[0x07] = function(tree, tvb)
    local header = tvb(16, 4)
    tree:add(f.half, header)
    local item = tree:add(f.mode, header)
    tree:add(f.mode_reserved, header)
    local mode = MODES[header:bitfield(1, 3)]
    if mode == nil or header:bitfield(4, 28) ~= 0 then
        item:add_proto_expert_info(e.mode)
    end
    local role = header:bitfield(0, 1) == 0 and "source" or "sink"
    return (mode or "unknown") .. " mode, by the " .. role
end

extended[0x0b] = function(tree, tvb)
    tree:add(f.wanted_buffer, tvb(16, 4))
    return tvb(16, 4):uint() .. " bytes desired"
end

extended[0x0c] = function(tree, tvb)
    tree:add(f.buffer, tvb(16, 4))
    return tvb(16, 4):uint() .. " bytes"
end

extended[0x0d] = function(tree, tvb)
    tree:add(f.service, tvb(16, 8))
    return "service ID 0x" .. tostring(tvb(16, 8):bytes())
end

extended[0xfd] = function(tree, tvb)
    tree:add(f.sink_len, tvb(16, 4))
    tree:add(f.sink_key, tvb(20, 4))
    tree:add(f.sink_address, tvb(24, 8))
    tree:add(f.non_discards, tvb(32, 4))
    return tvb(16, 4):uint() .. " bytes advertised, NonDiscards " .. tvb(32, 4):uint()
end

extended[0xfe] = function(tree, tvb)
    tree:add(f.src_len, tvb(16, 4))
    tree:add(f.src_key, tvb(20, 4))
    tree:add(f.src_address, tvb(24, 8))
    return tvb(16, 4):uint() .. " bytes advertised"
end

-- Adds the payload that follows a header of this length. Returns the length of the whole payload.
local function add_payload(tree, tvb, mid, header, is_last)
    local payload_len = math.max(tvb(4, 4):uint() - header, 0)
    local here = tvb:captured_len() - header
    if here <= 0 then
        return payload_len
    end
    tree:add(f.payload_len, tvb(4, 4), payload_len):set_generated()
    local item = tree:add(f.payload, tvb(header, here))
    if not carries_payload(mid) then
        item:add_proto_expert_info(e.payload)
    elseif mid == MID.DATA and is_last and here == payload_len and tvb(1, 1):uint() % 2 == 1 then
        tree:add(f.urgent, tvb(header + here - 1, 1))
    end
    return payload_len
end

local function dissect_message(tvb, tree, is_last)
    local mid = tvb(0, 1):uint()
    local name = NAMES[mid] or string.format("MID 0x%02x", mid)
    local item = tree:add(sdp, tvb())
    local len_item, flags = add_base(item, tvb)
    local texts = { "MSeq=" .. tvb(8, 4):uint(), "Ack=" .. tvb(12, 4):uint(), "Bufs=" .. tvb(2, 2):uint() }
    local len, here = tvb(4, 4):uint(), tvb:reported_length_remaining()
    if (is_last and len ~= here) or (not is_last and len <= here) then
        len_item:add_proto_expert_info(e.length)
    end
    if NAMES[mid] == nil or mid == MID.HELLO or mid == MID.HELLO_ACK then
        item:add_proto_expert_info(e.kind)
    end
    local header = BASE_LEN + (extended[mid] and EXTENDED[mid] or 0)
    if tvb:captured_len() < header then
        item:add_proto_expert_info(e.cut)
    else
        if extended[mid] then
            texts[#texts + 1] = extended[mid](item, tvb)
        end
        local payload = add_payload(item, tvb, mid, header, is_last)
        if payload > 0 then
            texts[#texts + 1] = payload .. " bytes of payload"
        end
    end
    if flags ~= "" then
        texts[#texts + 1] = "[" .. flags .. "]"
    end
    local text = name .. " " .. table.concat(texts, ", ")
    item:append_text(", " .. text)
    return text
end

-- The texts of the messages of the packet that is being dissected. A packet may hold several FPDUs, and each
-- of them replaces the columns, so the postdissector writes them.
local texts_of_packet = {}

local function heuristic(tvb, _, tree)
    if not is_send() then
        return false
    end
    local stream = current_stream()
    local is_known = stream ~= nil and streams[stream]
    local is_first, is_last = position(tvb)
    if not is_first then
        if is_known then
            tree:add(sdp, tvb(), "Sockets Direct Protocol over iWARP, further payload"):add(f.payload, tvb())
        end
        return is_known
    end
    if tvb:captured_len() < BASE_LEN or not (is_known or is_message(tvb, is_last)) then
        return false
    end
    if stream ~= nil then
        streams[stream] = true
    end
    texts_of_packet[#texts_of_packet + 1] = dissect_message(tvb, tree, is_last)
    return true
end

-- Adds the fields that Hello and HelloAck have in common.
local function add_parameters(tree, tvb)
    tree:add(f.major, tvb(16, 1))
    tree:add(f.minor, tvb(16, 1))
    local cap = tree:add(f.cap, tvb(17, 1))
    cap:add(f.cap_invalidate, tvb(17, 1))
    cap:add(f.cap_extended, tvb(17, 1))
    tree:add(f.max_adverts, tvb(19, 1))
    return "version " .. tvb(16, 1):bitfield(0, 4) .. "." .. tvb(16, 1):bitfield(4, 4)
        .. ", MaxAdverts " .. tvb(19, 1):uint()
end

local function dissect_hello(tree, tvb)
    local text = add_parameters(tree, tvb)
    tree:add(f.family, tvb(17, 1))
    tree:add(f.wanted_size, tvb(20, 4))
    tree:add(f.local_size, tvb(24, 4))
    tree:add(f.port, tvb(28, 2))
    if tvb(17, 1):bitfield(0, 4) == 6 then
        tree:add(f.source6, tvb(32, 16))
        tree:add(f.target6, tvb(48, 16))
    else
        tree:add(f.source4, tvb(44, 4))
        tree:add(f.target4, tvb(60, 4))
    end
    if tvb(17, 1):bitfield(6, 1) == 1 and tvb:len() >= 68 then
        tree:add(f.extended_adverts, tvb(66, 2))
    end
    return text .. ", LocalRcvSz " .. tvb(24, 4):uint()
end

local function dissect_hello_ack(tree, tvb)
    local text = add_parameters(tree, tvb)
    tree:add(f.actual_size, tvb(20, 4))
    return text .. ", ActRcvSz " .. tvb(20, 4):uint()
end

-- The range of a Hello or HelloAck in private data, and its MID. Enhanced start-up (RFC 6581) puts four bytes
-- before the private data of the consumer. Trailing zeros may be missing.
local function find_hello(range)
    for _, at in ipairs({ 0, 4 }) do
        local rest = range:len() - at
        if rest >= 24 then
            local hello = range:range(at, rest)
            local mid, len = hello(0, 1):uint(), hello(4, 4):uint()
            local numbers = hello(8, 4):uint() + hello(12, 4):uint()
            if mid == MID.HELLO and len == HELLO_LEN and numbers == 0 and rest >= 64 then
                return hello, mid
            elseif mid == MID.HELLO_ACK and len == HELLO_ACK_LEN and numbers == 0 then
                return hello, mid
            end
        end
    end
end

local function add_hello(tree)
    local private_data = private_data_field()
    if private_data == nil then
        return
    end
    local range, mid = find_hello(private_data.range)
    if range == nil then
        return
    end
    local stream = current_stream()
    if stream ~= nil then
        streams[stream] = true
    end
    local item = tree:add(sdp, range)
    add_base(item, range)
    local dissect = mid == MID.HELLO and dissect_hello or dissect_hello_ack
    local text = NAMES[mid] .. " " .. dissect(item, range)
    item:append_text(", " .. text)
    texts_of_packet[#texts_of_packet + 1] = text
end

-- The postdissector.
function sdp.dissector(_, pinfo, tree)
    add_hello(tree)
    if #texts_of_packet > 0 then
        pinfo.cols.protocol = "SDP/iWARP"
        pinfo.cols.info = table.concat(texts_of_packet, " | ")
        texts_of_packet = {}
    end
end

sdp:register_heuristic("iwarp_ddp_rdmap", heuristic)
register_postdissector(sdp)
