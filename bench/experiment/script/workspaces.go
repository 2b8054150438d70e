package script

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models/capture"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// A cudnnServer answers the stub libraries' questions about workspace sizes, over a Unix socket. Question and answer
// are one line each. The answer is the bytes, followed by "asked" if cuDNN itself returned them, "modeled" if vprof's
// rules did, "unknown", or "none" if cuDNN has no such engine.
type cudnnServer struct {
	ctx      context.Context
	listener net.Listener
	gpu      cudnn.GPU
	rules    *cudnn.Rules

	mu            sync.Mutex
	python        string
	conversations map[string]*capture.Conversation // by the library of the driver; nil where cuDNN does not answer
	driver        string
	known         map[string]string
	engines       map[query.Question]map[string][]capture.Engine // of cuDNN, by list
	settled       map[query.Question]bool                        // convolutions that are counted
	counts        report.Workspaces
}

// serve starts a server for questions about the simulated GPU. Only stub libraries ask.
func (c *Command) serve(ctx context.Context, r *hookFolder) (*cudnnServer, error) {
	s := &cudnnServer{
		ctx: ctx, gpu: gpuOf(c.GPU), rules: stack.Default().Rules().Convolutions,
		driver:        filepath.Join(c.Stubs, "13", "libcuda.so.1"),
		conversations: map[string]*capture.Conversation{}, known: map[string]string{},
		engines: map[query.Question]map[string][]capture.Engine{}, settled: map[query.Question]bool{},
	}
	if c.Stubs == "" {
		return s, nil
	}
	var err error
	if s.listener, err = net.Listen("unix", r.path("oracle")); err != nil {
		return nil, err
	}
	go s.accept()
	return s, nil
}

func gpuOf(gpu device.GPU) cudnn.GPU {
	return cudnn.GPU{Name: gpu.Name, Capability: int(gpu.Capability), Memory: gpu.Memory}
}

// accept serves one client after another until the listener is closed.
func (s *cudnnServer) accept() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.serveClient(client)
	}
}

func (s *cudnnServer) serveClient(client net.Conn) {
	defer client.Close()
	lines := bufio.NewScanner(client)
	for lines.Scan() {
		if _, err := fmt.Fprintln(client, s.answer(lines.Text())); err != nil {
			return
		}
	}
}

// addPython sets the Python whose PyTorch the command imports. Its cuDNN answers the questions.
func (s *cudnnServer) addPython(python string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.python = python
}

// Sizes counts the distinct questions by the source of their answers.
func (s *cudnnServer) Sizes() report.Workspaces {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Close stops the server.
func (s *cudnnServer) Close() {
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for _, c := range s.conversations {
		if c != nil {
			c.Close()
		}
	}
}

// answer returns the answer to a question. A repeated question gets the same answer and is not counted again.
func (s *cudnnServer) answer(line string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[line]; ok {
		return known
	}
	q, err := parseQuestion(line)
	if err != nil {
		q = question{} // nobody knows
	}
	s.known[line] = s.find(q)
	return s.known[line]
}

// find returns cuDNN's answer if it has one, else the result of the rules. The rules also answer for kernels that cuDNN
// offers only on a machine with a GPU.
func (s *cudnnServer) find(q question) string {
	if q.engine != (convolutionEngine{}) {
		return s.askOtherEngines(q)
	}
	n, asked := s.ask(q)
	switch o := q.convolution; {
	case asked && o != nil:
		if other, runs := s.rules.OnDevice(o.Config, o.Operation, s.gpu, n); runs {
			n, asked = other, false
		}
	case asked:
	case q.rule == nil:
		s.count(q, &s.counts.Unknown)
		return "0 unknown"
	default:
		n = q.rule(s.rules, s.gpu)
	}
	if asked {
		s.count(q, &s.counts.FromCuDNN)
		return answerText(n, nil)
	}
	s.count(q, &s.counts.Modeled)
	return strconv.FormatInt(n, 10) + " modeled"
}

// askOtherEngines returns the workspace of an engine that PyTorch tries besides its first choice, or the numerical
// notes of an engine as a bit set. Without cuDNN, there is one fallback engine without workspace and notes, like the
// first algorithm of each convolution (CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM).
func (s *cudnnServer) askOtherEngines(q question) string {
	c := s.conversation(q)
	if q.engine.list == "" {
		if c == nil {
			return "0 modeled"
		}
		notes, err := c.Notes(*q.convolution)
		return answerText(int64(bitSet(notes)), err)
	}
	all, known := s.engines[*q.convolution]
	if !known && c != nil { // cuDNN is asked once, also where it gives no answer
		if proposed, fallbacks, err := c.Engines(*q.convolution); err == nil {
			all = map[string][]capture.Engine{"proposal": proposed, "fallback": fallbacks}
		}
		s.engines[*q.convolution] = all
	}
	switch list := all[q.engine.list]; {
	case q.engine.at < len(list) && q.engine.notes:
		return answerText(int64(bitSet(list[q.engine.at].Notes)), nil)
	case q.engine.at < len(list):
		s.count(q, &s.counts.FromCuDNN)
		return answerText(list[q.engine.at].Workspace, nil)
	case q.engine.notes || all == nil && q.engine == (convolutionEngine{list: "fallback"}):
		return "0 modeled"
	}
	return "-1 none"
}

// count counts a question by its kind. Of the engines of one convolution, only the first question counts.
func (s *cudnnServer) count(q question, kind *int) {
	if c := q.convolution; c != nil {
		if s.settled[*c] {
			return
		}
		s.settled[*c] = true
	}
	*kind++
}

// answerText formats cuDNN's answer as a line of the protocol.
func answerText(n int64, err error) string {
	if err != nil {
		return "0 unknown"
	}
	return strconv.FormatInt(n, 10) + " asked"
}

func bitSet(numbers []int) (set uint64) {
	for _, n := range numbers {
		set |= 1 << n
	}
	return set
}

// ask returns cuDNN's answer in bytes; asked is false if there is none.
func (s *cudnnServer) ask(q question) (n int64, asked bool) {
	c := s.conversation(q)
	if c == nil {
		return 0, false
	}
	n, err := c.AskLine(q.asked)
	return n, err == nil && n >= 0
}

// conversation returns the running cuDNN program that answers a question; nil if there is none. There are at most two:
// one without a driver, for convolutions, and one with a driver (--driver of the asking program).
func (s *cudnnServer) conversation(q question) *capture.Conversation {
	if q.asked == "" || s.python == "" {
		return nil
	}
	driver := ""
	if q.compiled {
		driver = s.driver
	}
	c, tried := s.conversations[driver]
	if !tried {
		var err error
		if c, err = (capture.Asking{Python: s.python, Driver: driver}).Converse(s.ctx,
			cudnn.Generation(s.gpu)); err != nil {
			c = nil
		}
		s.conversations[driver] = c
	}
	return c
}
