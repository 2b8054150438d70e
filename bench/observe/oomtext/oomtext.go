// Package oomtext parses out-of-memory messages: torch.OutOfMemoryError of PyTorch 1.0 to 2.15, alone or in a log, with
// the traceback before it, and messages of schedulers and kernels about host memory.
package oomtext

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/pattern"
)

// Message is one out-of-memory error. Sizes that it does not contain are zero.
type Message struct {
	// Rank is torchrun's rank, and GPU the device's index; -1 if the text contains none.
	Rank, GPU int
	// Requested is the requested bytes; zero if the driver or a library failed.
	Requested int64
	// Total is the device's memory, Free its free part, Process the memory of the process that failed, Others the
	// memory of other processes.
	Total, Free, Process, Others int64
	// Allowed is the memory limit of the process (set_per_process_memory_fraction).
	Allowed int64
	// Allocated is the memory of tensors, Pools the part of that in private pools (CUDA graphs), and Cached the
	// allocator's other memory.
	Allocated, Pools, Cached int64
	// OldFormat reports whether the message is in the format of PyTorch up to 2.0, which has no expandable segments.
	OldFormat bool
	// Where is the source line that allocated: the traceback's last one outside of PyTorch; empty without a traceback.
	Where string
}

// oomWordings match the starts of out-of-memory errors. The driver's and cuBLAS's have no sizes.
var oomWordings = []string{
	"CUDA out of memory. Tried to allocate", "HIP out of memory. Tried to allocate",
	"XPU out of memory. Tried to allocate",
	"CUDA error: out of memory", "CUDA driver error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED",
}

const (
	sizePattern = `([0-9]+(?:\.[0-9]+)? (?:[KMGT]iB|bytes?))`
	// most is the largest length of a message in bytes, maxPrefixBytes of the traceback before it.
	most, maxPrefixBytes = 4096, 1 << 16
	// MaxMessages is the number of errors that are read from a log: the errors of further ranks add nothing.
	MaxMessages = 1024
)

// sizePatterns match the numbers in a message. Line breaks may be anywhere between words.
var sizePatterns = []struct {
	find func() *regexp.Regexp
	put  func(*Message, int64)
}{
	{pattern.Lazy(`Tried to allocate ` + sizePattern), func(m *Message, n int64) { m.Requested = n }},
	{pattern.Lazy(`has a total capaci?ty of ` + sizePattern), func(m *Message, n int64) { m.Total = n }},
	{pattern.Lazy(`of which ` + sizePattern + ` is free`), func(m *Message, n int64) { m.Free = n }},
	{pattern.Lazy(`this process has ` + sizePattern + ` memory in use`), func(m *Message, n int64) { m.Process = n }},
	{pattern.Lazy(sizePattern + ` allowed;`), func(m *Message, n int64) { m.Allowed = n }},
	{pattern.Lazy(`Of the allocated memory ` + sizePattern + ` is allocated by PyTorch`), func(m *Message, n int64) {
		m.Allocated = n
	}},
	{pattern.Lazy(`with ` + sizePattern + ` allocated in private pools`), func(m *Message, n int64) { m.Pools = n }},
	{pattern.Lazy(sizePattern + ` is reserved by PyTorch but unallocated`), func(m *Message, n int64) { m.Cached = n }},
	// The format up to PyTorch 2.0: (GPU 0; 7.79 GiB total capacity; 6.52 GiB already allocated; 17.06 MiB free; 6.65
	// GiB reserved in total by PyTorch)
	{pattern.Lazy(`GPU [0-9]{1,4}; ` + sizePattern + ` total capacity`), func(m *Message, n int64) {
		m.Total, m.OldFormat = n, true
	}},
	{pattern.Lazy(sizePattern + ` already allocated`), func(m *Message, n int64) { m.Allocated = n }},
	{pattern.Lazy(sizePattern + ` free;`), func(m *Message, n int64) { m.Free = n }},
	{pattern.Lazy(sizePattern + ` cached\)`), func(m *Message, n int64) { m.Cached = n }},
	{pattern.Lazy(sizePattern + ` reserved in total by PyTorch`), func(m *Message, n int64) {
		m.Cached = max(0, n-m.Allocated)
	}},
}

var (
	otherProcesses = pattern.Lazy(`Process [0-9]+ has ` + sizePattern + ` memory in use`)
	gpu            = pattern.Lazy(`GPU ([0-9]{1,4})(?: has|;)`)
	rank           = pattern.Lazy(`^\[rank([0-9]{1,6})\]:`)
	frame          = pattern.Lazy(`File "([^"]+)", line ([0-9]+), in (\S+)`)
	prefix         = pattern.Lazy(`(?m)^\[rank[0-9]+\]: ?`)
)

// Contains reports whether a text contains an out-of-memory error.
func Contains(text []byte) bool {
	return slices.ContainsFunc(oomWordings, func(w string) bool { return bytes.Contains(text, []byte(w)) })
}

// span is the range of the start of an error in a text.
type span struct{ from, to int }

// find returns the positions of the first errors in a text. It searches for fixed strings: a regular expression of all
// wordings would take seconds for a log of 64 MB.
func find(text string) []span {
	var all []span
	for _, w := range oomWordings {
		at := 0
		for range MaxMessages {
			i := strings.Index(text[at:], w)
			if i < 0 {
				break
			}
			all = append(all, span{at + i, at + i + len(w)})
			at += i + len(w)
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.from - b.from })
	return all[:min(len(all), MaxMessages)]
}

// Parse returns all out-of-memory errors in a text, in order.
func Parse(text string) []Message {
	var all []Message
	found := find(text)
	for i, at := range found {
		from, to := 0, len(text)
		if i > 0 {
			from = found[i-1].to
		}
		if i+1 < len(found) {
			to = found[i+1].from
		}
		all = append(all, message(text[max(from, at.from-maxPrefixBytes):at.from], text[at.from:min(to, at.from+most)]))
	}
	return all
}

// message parses one error and the text before it.
func message(before, text string) Message {
	m := Message{Rank: -1, GPU: -1, Where: requester(before)}
	line := before[strings.LastIndexByte(before, '\n')+1:]
	if r := rank().FindStringSubmatch(line); r != nil {
		m.Rank, _ = strconv.Atoi(r[1])
	}
	words := strings.Join(strings.Fields(prefix().ReplaceAllString(text, "")), " ")
	if g := gpu().FindStringSubmatch(words); g != nil {
		m.GPU, _ = strconv.Atoi(g[1])
	}
	for _, p := range sizePatterns {
		if s := p.find().FindStringSubmatch(words); s != nil {
			p.put(&m, parseAmount(s[1]))
		}
	}
	var listed []int64
	for _, s := range otherProcesses().FindAllStringSubmatch(words, -1) {
		listed = append(listed, parseAmount(s[1]))
		m.Others += listed[len(listed)-1]
	}
	m.identifySizes(listed)
	return m
}

// identifySizes finds the memory of the failed process among the listed processes. In a container, its process ID
// differs from the driver's, so PyTorch lists it as another process. It must be listed if the listed processes and
// PyTorch's own memory sum to more than the memory in use.
func (m *Message) identifySizes(listed []int64) {
	held := m.Allocated + m.Cached
	if m.Process > 0 || held == 0 || m.Total == 0 || m.Others+held <= m.Total-m.Free {
		return
	}
	own := int64(0)
	for _, n := range listed {
		if n >= held && (own == 0 || n < own) {
			own = n
		}
	}
	m.Process, m.Others = own, m.Others-own
}

// hostOOMWordings are parts of messages about a process that was killed because host memory ran out: from Slurm, Linux,
// PyTorch's loaders, its CPU allocator and torchrun.
var hostOOMWordings = []string{
	"oom_kill event", "oom-kill", "OOM Killed", "OOMKilled", "Exceeded job memory limit", "Out of memory: Kill",
	"is killed by signal: Killed",
	"DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory", "Signal 9 (SIGKILL)",
	"exitcode: -9", "exitcode  : -9",
}

// maxLineBytes is the largest length of a quoted line in bytes.
const maxLineBytes = 160

// HostMessage returns the first line of a text that reports that host memory, not a GPU's, ran out; empty if none does.
func HostMessage(text []byte) string {
	at := -1
	for _, w := range hostOOMWordings {
		if i := bytes.Index(text, []byte(w)); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if at < 0 {
		return ""
	}
	line := text[max(bytes.LastIndexByte(text[:at], '\n')+1, at-maxLineBytes):]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(line[:min(len(line), 2*maxLineBytes)]), ""))
}

// requester returns the last source line of a traceback outside of PyTorch, else the last of all.
func requester(before string) string {
	before = before[max(0, strings.LastIndex(before, "Traceback (most recent call last)")):]
	where := ""
	for _, f := range frame().FindAllStringSubmatch(before, -1) {
		if where == "" || !strings.Contains(f[1], "/torch/") {
			where = f[1] + ":" + f[2] + " " + f[3]
		}
	}
	return where
}

// parseAmount parses a size in bytes. A size above the memory of any GPU counts as missing: zero.
func parseAmount(s string) int64 {
	n, err := bytesize.Parse(strings.TrimSuffix(strings.TrimSuffix(s, " bytes"), " byte"))
	if err != nil || n > 1<<50 {
		return 0
	}
	return n
}
