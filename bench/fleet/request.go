package fleet

import (
	"fmt"
	"io"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/printable"
)

// requests write how schedulers are asked for a board's memory, by name. The
// bytes are the upper end of the estimate's interval.
var requests = map[string]func(w io.Writer, d report.Device, mib int64) error{
	"slurm": func(w io.Writer, d report.Device, mib int64) error {
		_, err := fmt.Fprintf(w, "#SBATCH --gres=gpu:1\n# or a part of one, where gres.conf has a shard for each GiB (%d of a %s):\n#SBATCH --gres=shard:%d\n",
			d.Memory/bytesize.GiB, d.GPU, ceil.Div(mib, 1024))
		return err
	},
	"k8s": func(w io.Writer, _ report.Device, mib int64) error {
		_, err := fmt.Fprintf(w, "resources:\n  limits:\n    nvidia.com/gpu: 1\n    nvidia.com/gpumem: %d  # MiB, as HAMi's device plugin counts\n", mib)
		return err
	},
	"kai": func(w io.Writer, _ report.Device, mib int64) error {
		_, err := fmt.Fprintf(w, "metadata:\n  annotations:\n    gpu-memory: \"%d\"  # MiB\n", mib)
		return err
	},
	"dra": func(w io.Writer, _ report.Device, mib int64) error {
		_, err := fmt.Fprintf(w, `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: vprof
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: gpu.nvidia.com
            selectors:
              - cel:
                  expression: device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("%dMi")) >= 0
`, mib)
		return err
	},
}

// Requests are the names of the requests that there are.
var Requests = []string{"slurm", "k8s", "kai", "dra"}

// WriteRequests writes how a scheduler is asked for the memory of each point of a plan:
// one of [Requests].
func WriteRequests(w io.Writer, r *report.Report, to string) error {
	for i, p := range r.Points {
		d, _ := r.Find(p.Device)
		mib := ceil.Div(p.Estimate.Device.High, bytesize.MiB)
		if to == "dra" && i > 0 {
			fmt.Fprintln(w, "---")
		}
		d.GPU = printable.Line(d.GPU) // a name with a line end would leave the comment
		fmt.Fprintf(w, "# %s, batch %d on %s: up to %s\n", printable.Line(r.Case.String()), p.Batch, d.GPU, bytesize.Format(p.Estimate.Device.High))
		if p.Estimate.Verdict != report.Fits {
			fmt.Fprintf(w, "# %s: %s\n", d.GPU, p.Estimate.Verdict)
		}
		if err := requests[to](w, d, mib); err != nil {
			return err
		}
	}
	return nil
}
