// Package answers reads recorded answers of cuDNN to questions of package query.
package answers

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// Answer is the engine that cuDNN selects for a convolution.
type Answer struct {
	query.Question
	// Engine is cuDNN's index of the engine among the operation's engines.
	Engine int
	// Knobs are the engine's settings by CUDNN_KNOB_TYPE.
	Knobs map[int]int64
	// Bytes is the workspace.
	Bytes int64
}

// parseAnswer reads a line of query/ask: bytes, engine with knobs, and the number of proposals before it. ok is false
// for lines that begin with "none": cuDNN has no engine.
func parseAnswer(q query.Question, line string) (a Answer, ok bool, err error) {
	words := strings.Fields(line)
	if len(words) > 0 && words[0] == "none" {
		return a, false, nil
	}
	if len(words) != 3 {
		return a, false, fmt.Errorf("%d words in the answer %q, want three or none", len(words), line)
	}
	a = Answer{Question: q, Knobs: map[int]int64{}}
	if a.Bytes, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return a, false, err
	}
	parts := strings.Split(words[1], ",")
	if a.Engine, err = strconv.Atoi(parts[0]); err != nil {
		return a, false, err
	}
	for _, p := range parts[1:] {
		var knob int
		var value int64
		if _, err := fmt.Sscanf(p, "%d=%d", &knob, &value); err != nil {
			return a, false, fmt.Errorf("knob %q: %w", p, err)
		}
		a.Knobs[knob] = value
	}
	return a, true, nil
}

// ReadQuestions calls visit with every question of a file, which has one on each line.
func ReadQuestions(path string, visit func(query.Question)) error {
	return readLines(path, func(line string) error {
		q, err := query.ParseQuestion(line)
		if err == nil {
			visit(q)
		}
		return err
	})
}

// Read calls visit with every answer of a file for which cuDNN has an engine. A line is a question, "
// " and its answer.
func Read(path string, visit func(Answer)) error {
	return readLines(path, func(line string) error {
		question, answer, found := strings.Cut(line, "|")
		if !found {
			return errors.New("no bar")
		}
		q, err := query.ParseQuestion(question)
		if err != nil {
			return err
		}
		a, ok, err := parseAnswer(q, answer)
		if ok {
			visit(a)
		}
		return err
	})
}

// readLines calls visit with every line of a file. Errors name the file and the line. Files ending in .gz are
// decompressed.
func readLines(path string, visit func(string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		if err := visit(s.Text()); err != nil {
			return fmt.Errorf("%s: line %d: %w", path, n, err)
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
