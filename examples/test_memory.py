"""A memory test without a GPU: pytest test_memory.py. Requires PyTorch for CUDA and the vprof-gpu wheel."""


def step():
    """Runs one training step of a small network."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    loss = model(torch.randn(256, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()


def test_a_step_fits_a_small_gpu(assert_peak):
    assert_peak(step, gpu="t4", below="1GiB")
