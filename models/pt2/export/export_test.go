package export_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vprof/vprof/models/pt2/export"
)

func TestScratch(t *testing.T) {
	files, _ := filepath.Glob("/opt/pt2/*.pt2")
	for _, f := range files {
		begun := time.Now()
		p, err := export.Open(f)
		if err != nil {
			t.Error(err)
			continue
		}
		info, _ := os.Stat(f)
		t.Log(filepath.Base(f), info.Size(), time.Since(begun), len(p.Nodes), p.Values, len(p.Inputs), p.Results, p.Ranges, p.Torch)
	}
}
