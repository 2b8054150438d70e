package capture

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/vprof/vprof/models/pt2/cudnnanswers"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// LocalCuDNN answers questions about convolutions with the cuDNN of the Python interpreter that captured models. It
// stores the answers in a folder of the user.
type LocalCuDNN struct {
	// Folder holds the interpreter's path, and the answers of earlier processes.
	Folder string
	// Silent disables questions to cuDNN, so that callers find out which convolutions have no stored answer.
	Silent bool

	mu     sync.Mutex
	opened bool
	python string
	known  cudnnanswers.Answers
	told   []*versionAnswers
}

// versionAnswers holds the answers of a version of cuDNN for a generation of GPUs, and the conversation for others.
type versionAnswers struct {
	cudnnanswers.Set
	before cudnn.Answer
	talk   *Conversation
	silent bool // there is nobody to ask
}

const (
	pythonFile  = "python"
	answersFile = "answers.json"
)

// Remember stores the path of the Python interpreter whose cuDNN answers from now on. The path is never read from files
// that others may have written, because the interpreter is executed.
func (o *LocalCuDNN) Remember(python string) error {
	path, err := findPython(python)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Folder, pythonFile), []byte(path+"\n"), 0o600)
}

// Answers returns answers as a [cudnnanswers.Source] does, nil if no interpreter was remembered.
func (o *LocalCuDNN) Answers(version string, generation int) cudnn.Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.load()
	if o.python == "" || o.Silent {
		return nil
	}
	for _, t := range o.told {
		if t.CuDNN == version && t.Capability == generation {
			return o.answer(t)
		}
	}
	t := &versionAnswers{
		Set:    cudnnanswers.Set{CuDNN: version, Capability: generation, Bytes: map[string]int64{}},
		before: o.known.For(version, generation),
	}
	o.told = append(o.told, t)
	return o.answer(t)
}

// load reads the stored answers. Unreadable answers are asked again.
func (o *LocalCuDNN) load() {
	if o.opened {
		return
	}
	o.opened = true
	name, err := os.ReadFile(filepath.Join(o.Folder, pythonFile))
	if err != nil {
		return
	}
	o.python = strings.TrimSpace(string(name))
	if _, err := os.Stat(o.python); err != nil {
		o.python = ""
		return
	}
	o.known, _ = cudnnanswers.Read(filepath.Join(o.Folder, answersFile))
}

// answer returns a function that looks up a stored answer, or else asks cuDNN.
func (o *LocalCuDNN) answer(t *versionAnswers) cudnn.Answer {
	return func(c cudnn.Config, d cudnn.Direction) (int64, bool) {
		if n, ok := t.before(c, d); ok {
			return n, n >= 0
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		q := query.Question{Operation: d, Config: c}
		text := q.String()
		n, ok := t.Bytes[text]
		if !ok && o.converse(t) {
			var err error
			if n, err = t.talk.AskLine(q.String()); err != nil {
				t.silent = true
				return 0, false
			}
			t.Bytes[text], ok = n, true
		}
		return n, ok && n >= 0
	}
}

// converse reports whether a cuDNN of the same version is available. It tries to start a conversation only once.
func (o *LocalCuDNN) converse(t *versionAnswers) bool {
	if t.talk != nil || t.silent {
		return !t.silent
	}
	t.silent = true
	talk, err := Asking{Python: o.python}.Converse(context.Background(), t.Capability)
	if err != nil {
		return false
	}
	t.talk, t.silent = talk, talk.Version != t.CuDNN
	return !t.silent
}

// Close ends all conversations and stores their answers. The error comes from writing.
func (o *LocalCuDNN) Close(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var failed error
	for _, t := range o.told {
		if t.talk != nil {
			t.talk.Close()
		}
		for q, n := range t.Bytes { // that there is no engine is not kept
			if n < 0 {
				delete(t.Bytes, q)
			}
		}
		if len(t.Bytes) > 0 {
			failed = errors.Join(failed, cudnnanswers.Save(ctx, filepath.Join(o.Folder, answersFile), t.Set))
		}
	}
	o.told = nil
	return failed
}
