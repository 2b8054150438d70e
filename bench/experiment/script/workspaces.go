package script

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/vprof/vprof/models/capture"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/oracle"
)

// A server answers the stand-ins' questions about workspaces, over a Unix socket. A
// question is a line and so is its answer: the bytes, and "asked" if cuDNN itself told
// them or "modeled" if vprof's rules did.
type server struct {
	ctx      context.Context
	listener net.Listener
	board    cudnn.Board
	rules    *cudnn.Rules

	mu             sync.Mutex
	python         string
	tried          bool
	cudnn          *capture.Conversation
	known          map[string]string
	asked, modeled int
}

// serve begins to answer questions about the board. Without stand-ins nobody asks.
func (c *Command) serve(ctx context.Context, r *room) (*server, error) {
	s := &server{ctx: ctx, board: boardOf(c.Board), rules: stack.Default().Rules().Convolutions, known: map[string]string{}}
	if c.StandIns == "" {
		return s, nil
	}
	var err error
	if s.listener, err = net.Listen("unix", r.path("oracle")); err != nil {
		return nil, err
	}
	go s.accept()
	return s, nil
}

func boardOf(gpu device.GPU) cudnn.Board {
	return cudnn.Board{Name: gpu.Name, Capability: int(gpu.Capability), Memory: gpu.Memory}
}

// accept answers one client after the other until the listener is closed.
func (s *server) accept() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.talk(client)
	}
}

func (s *server) talk(client net.Conn) {
	defer client.Close()
	lines := bufio.NewScanner(client)
	for lines.Scan() {
		if _, err := fmt.Fprintln(client, s.answer(lines.Text())); err != nil {
			return
		}
	}
}

// found says which Python imports PyTorch: its cuDNN is asked.
func (s *server) found(python string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.python = python
}

// Counts are the different questions that were answered by cuDNN and by the rules.
func (s *server) Counts() (asked, modeled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.modeled
}

// Close ends the answers.
func (s *server) Close() {
	if s.listener != nil {
		_ = s.listener.Close()
	}
	if s.cudnn != nil {
		s.cudnn.Close()
	}
}

// answer answers a line, each question once.
func (s *server) answer(line string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[line]; ok {
		return known
	}
	q, err := parseQuestion(line)
	if err != nil {
		return "0 modeled"
	}
	bytes, asked := s.bytes(q)
	text := "modeled"
	if asked {
		text = "asked"
		s.asked++
	} else {
		s.modeled++
	}
	s.known[line] = strconv.FormatInt(bytes, 10) + " " + text
	return s.known[line]
}

// bytes is the workspace of a convolution: cuDNN's own answer where there is one.
func (s *server) bytes(q oracle.Question) (bytes int64, asked bool) {
	if s.converse() {
		if n, err := s.cudnn.Ask(q); err == nil && n >= 0 {
			return n, true
		}
	}
	allocations := s.rules.Workspaces(q.Config, q.Operation, s.board)
	if len(allocations) == 0 {
		return 0, false
	}
	return allocations[len(allocations)-1], false // copies of tensors come before it
}

// converse tells whether there is a cuDNN to ask. It is looked for once.
func (s *server) converse() bool {
	if !s.tried && s.python != "" {
		s.tried = true
		c, err := capture.Asking{Python: s.python}.Converse(s.ctx, cudnn.Generation(s.board))
		if err == nil {
			s.cudnn = c
		}
	}
	return s.cudnn != nil
}

// operations and types by the stand-ins' names.
var (
	operations = map[string]cudnn.Direction{"fprop": cudnn.Forward, "dgrad": cudnn.GradInput, "wgrad": cudnn.GradWeight}
	types      = map[string]cudnn.DType{"float": cudnn.F32, "half": cudnn.F16, "bfloat16": cudnn.BF16}
)

// parseQuestion reads a line such as
//
//	conv fprop dtype=half compute=float x=8,3,64,64;s=12288,4096,64,1 w=16,3,3,3;s=... y=8,16,64,64;s=... pad=1,1 stride=1,1 dilation=1,1
//
// where ;s= are strides. The groups are the channels of x divided by those of w.
func parseQuestion(line string) (oracle.Question, error) {
	var q oracle.Question
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "conv" {
		return q, fmt.Errorf("%q is no question about a convolution", line)
	}
	operation, known := operations[words[1]]
	if !known {
		return q, fmt.Errorf("unknown operation %q", words[1])
	}
	given := map[string]string{}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		given[key] = value
	}
	sizes := map[string][]int64{}
	for _, key := range []string{"x", "w", "y", "pad", "stride", "dilation"} {
		dims, _, _ := strings.Cut(given[key], ";")
		list, err := numbers(dims)
		if err != nil {
			return q, fmt.Errorf("%s: %w", key, err)
		}
		sizes[key] = list
	}
	c, err := configOf(sizes)
	if err != nil {
		return q, err
	}
	if c.DType, known = types[given["dtype"]]; !known {
		return q, fmt.Errorf("unknown type %q", given["dtype"])
	}
	if channelsLast(given["x"]) {
		c.Layout = cudnn.ChannelsLast
	}
	return oracle.Of(c, operation), nil
}

// configOf is a convolution by the sizes of its tensors.
func configOf(sizes map[string][]int64) (cudnn.Config, error) {
	x, w, y := sizes["x"], sizes["w"], sizes["y"]
	dims := len(x) - 2
	if dims < 2 || dims > 3 || len(w) != len(x) || len(y) != len(x) || w[1] < 1 || x[1]%w[1] != 0 {
		return cudnn.Config{}, fmt.Errorf("tensors of %d, %d and %d dimensions", len(x), len(w), len(y))
	}
	c := cudnn.Config{Dim: dims, N: x[0], Ci: x[1], Co: y[1], Groups: x[1] / w[1]}
	for _, part := range []struct {
		to   *[3]int64
		from []int64
	}{{&c.In, x[2:]}, {&c.K, w[2:]}, {&c.Out, y[2:]}, {&c.Stride, sizes["stride"]}, {&c.Pad, sizes["pad"]}, {&c.Dilation, sizes["dilation"]}} {
		if len(part.from) != dims {
			return c, fmt.Errorf("%d numbers for %d dimensions", len(part.from), dims)
		}
		copy(part.to[:], part.from)
	}
	return c, nil
}

// channelsLast tells whether the channels of a tensor lie side by side: its strides say so.
func channelsLast(tensor string) bool {
	dims, strides, _ := strings.Cut(tensor, ";s=")
	d, err := numbers(dims)
	s, failed := numbers(strides)
	return err == nil && failed == nil && len(d) == len(s) && len(d) > 2 && d[1] > 1 && s[1] == 1
}

func numbers(list string) ([]int64, error) {
	var all []int64
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}
