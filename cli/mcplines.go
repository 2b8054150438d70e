package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// agentLines carry a message a line between an agent and the server. A line without a valid message gets an error. The
// input ends for the server only when all requests have an answer; the SDK's transport would end the session at once.
type agentLines struct {
	mu   sync.Mutex
	out  io.Writer
	open sync.WaitGroup // requests without an answer
}

// transport returns the server's side of the lines read from in.
func (l *agentLines) transport(in io.Reader) mcp.Transport {
	from, to := io.Pipe()
	go func() {
		lines := bufio.NewReader(in)
		for err := error(nil); err == nil; {
			var line []byte
			if line, err = readLine(lines); len(line) <= 1 {
				continue // empty
			}
			message, wrong := jsonrpc.DecodeMessage(line)
			if len(line) > longestRequest {
				wrong = fmt.Errorf("a line has at most %d bytes", longestRequest)
			}
			if wrong != nil {
				l.refuse(wrong)
				continue
			}
			if r, ok := message.(*jsonrpc.Request); ok && r.IsCall() {
				l.open.Add(1)
			}
			_, _ = to.Write(append(line, '\n')) // nobody reads on after the session
		}
		l.open.Wait()
		to.Close()
	}()
	return &mcp.IOTransport{Reader: from, Writer: l}
}

func readLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(line) <= longestRequest {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// refuse answers a line that holds no valid message with an error.
func (l *agentLines) refuse(wrong error) {
	text, _ := json.Marshal(map[string]any{ // of texts and a number
		"jsonrpc": "2.0", "id": nil, "error": jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: wrong.Error()},
	})
	_, _ = l.Write(append(text, '\n')) // the next answer fails, too
}

// Write writes a message of the server.
func (l *agentLines) Write(message []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.out.Write(message)
	if m, wrong := jsonrpc.DecodeMessage(message); wrong == nil {
		if r, answer := m.(*jsonrpc.Response); answer && r.ID.IsValid() {
			l.open.Done()
		}
	}
	return n, err
}

// Close leaves standard output open.
func (l *agentLines) Close() error { return nil }
