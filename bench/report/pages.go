package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vprof/vprof/internal/rewrite"
)

// Pages writes reports as JSON Lines into several files of a folder, page-0001.jsonl and so on. A page is at most as
// large as readers accept, unless a single report is larger. A page appears only when it is complete.
type Pages struct {
	Dir string
	// Size is the size of a page, in bytes.
	Size int64

	page    int
	file    *rewrite.Pending
	written int64
}

// Write adds a report.
func (p *Pages) Write(r *Report) error {
	var lines []byte
	for _, l := range r.Data().Lines {
		text, err := json.Marshal(l)
		if err != nil {
			return err
		}
		lines = append(append(lines, text...), '\n')
	}
	if p.file != nil && p.written+int64(len(lines)) > p.Size {
		if err := p.end(); err != nil {
			return err
		}
	}
	if p.file == nil {
		if err := p.begin(); err != nil {
			return err
		}
	}
	p.written += int64(len(lines))
	_, err := p.file.Write(lines)
	return err
}

func (p *Pages) begin() error {
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return err
	}
	p.page++
	p.written = 0
	var err error
	p.file, err = rewrite.CreatePending(p.name(p.page), 0o644)
	return err
}

func (p *Pages) name(page int) string {
	return filepath.Join(p.Dir, fmt.Sprintf("page-%04d.jsonl", page))
}

func (p *Pages) end() error {
	f := p.file
	p.file = nil
	return f.Replace()
}

// Close completes the last page, or discards it after a failure. It removes pages of an earlier, longer result.
func (p *Pages) Close(failure error) error {
	if p.file != nil && failure != nil {
		return p.file.Discard()
	}
	if p.file != nil {
		if err := p.end(); err != nil {
			return err
		}
	}
	for n := p.page + 1; failure == nil; n++ {
		err := os.Remove(p.name(n))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
