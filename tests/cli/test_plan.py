#!/usr/bin/python3
"""ferry plan, inspect, help: what a person sees, exit codes, streams."""
import glob
import json
import os
import shutil
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running

tally = running.Tally()
MODELS = os.path.join(running.ROOT, 'tests', 'parity', 'models')


def ferry(*arguments, **options):
    return running.execute([running.FERRY, *arguments], timeout=30, **options)


def expect(name, result, code, out=(), err=()):
    """out and err: texts that must be in standard output and standard error."""
    good = result.code == code and all(text in result.out for text in out) and all(text in result.err for text in err)
    return tally.check(good, name, f'exit {result.code}, expected {code}\n{out} {err}\n--- stdout\n{result.out[:2000]}\n'
                       f'--- stderr\n{result.err[:2000]}')


def plan(folder, *arguments, mesh=None, text='', generate=None, **sections):
    path = running.write_topology(folder, 'test', mesh or {'tensor': 1}, generate, text, **sections)
    return ferry('plan', path, *arguments)


def generate_keys(model, **more):
    return {'model': model, 'prompts': ['a'], 'max_new_tokens': 4, **more}


def examples():
    for path in sorted(glob.glob(os.path.join(running.ROOT, 'examples', '*', '*.yaml'))):
        result = ferry('plan', path)
        expect(f'example {os.path.relpath(path, running.ROOT)} is sound', result, 0, ['verdict    sound'])
        tally.check(result.err == '', f'and nothing is on standard error: {os.path.basename(path)}', result.err)
        for line in ferry('plan', path, '--json').out.splitlines():
            json.loads(line)


def tree(folder):
    result = plan(folder, mesh={'pipeline': 2, 'tensor': 2},
                  generate=generate_keys(os.path.join(MODELS, 'llama-9-heads')),
                  launch={'hosts': [{'name': 'node1', 'slots': 2}, {'name': 'node2', 'slots': 2}]},
                  groups=[{'name': 'evaluators', 'members': [3, 1]}])
    expect('the tree has world, stages, heads, boundaries, groups, launch', result, 0, [
        'world      4 ranks: pipeline 2 x tensor 2', 'stage 0', 'stage 1', 'heads 5/2', 'heads 4/2', 'on node1',
        'boundary forward: forward/0-2, forward/1-3', 'boundary token: token/2-0', 'boundary result: result/2-0',
        'u32[8,4]', 'f32[rows 0..', 'group evaluators: members 3, 1', 'not checked here:',
        f'launch     mpirun -n 4 {running.FERRY} run '])
    tally.check('--oversubscribe' not in result.out, 'slots are those of the hosts, where there are hosts', result.out)
    result = plan(folder, '--set', 'run_dir=my runs', mesh={'data': os.cpu_count() + 1}, generate=generate_keys('/nowhere'))
    expect('the launch command has the overrides, and says what more ranks than cores need', result, 0,
           [f"run {folder}/test.yaml --set 'run_dir=my runs'\n           here, with ", 'mpirun --oversubscribe\n'])

    result = plan(folder, mesh={'data': 16, 'tensor': 2}, generate=generate_keys(os.path.join(MODELS, 'llama')))
    tally.check(len(result.out.splitlines()) < 40, 'equal ranks collapse', result.out)
    result = plan(folder, '--rank', '3', mesh={'pipeline': 2, 'tensor': 2})
    expect('one rank', result, 0, ['rank       3 of 4, pipeline 1, tensor 1', 'tensor/1: member 1 of 2', 'forward/1-3',
                                    'transport  auto, tensors in device memory where nccl moves them, else host memory'])
    result = plan(folder, '--rank', '1', mesh={'pipeline': 2}, communication={'transport': 'mpi', 'memory': 'device'})
    expect('a rank whose tensors are staged', result, 0,
           ['transport  mpi, tensors in device memory, staged through pinned host memory'])
    result = plan(folder, '--rank', '4', mesh={'pipeline': 2, 'tensor': 2})
    expect('a rank outside the world', result, 2, err=['0 to 3'])
    result = plan(folder, mesh={'pipeline': 2}, launch={'program': ['./my solver', '--fast']})
    expect('the launch command quotes what a shell would split', result, 0, ["mpirun -n 2 './my solver' --fast"])


def as_json(folder):
    result = plan(folder, '--json', mesh={'tensor': 2, 'pipeline': 3, 'expert': 2, 'data': 2},
                  groups=[{'name': 'some', 'members': [5, 2]}])
    objects = [json.loads(line) for line in result.out.splitlines()]
    kinds = [o['kind'] for o in objects]
    tally.check([kinds.count(k) for k in ('plan', 'stage', 'rank', 'group', 'route')] == [1, 3, 24, 49, 16],
                'JSON has every stage, rank, group and route', str(kinds))
    groups = {o['id']: o for o in objects if o['kind'] == 'group'}
    routes = {o['id']: o for o in objects if o['kind'] == 'route'}
    rank = next(o for o in objects if o['kind'] == 'rank' and o['rank'] == 22)
    found = [groups[rank[f'{axis}_group']]['members'] for axis in ('tensor', 'pipeline', 'expert', 'data')]
    tally.check(found == [[20, 22], [14, 18, 22], [22, 23], [10, 22]], "rank 22's groups", str(found))
    first = routes[min(routes)]
    tally.check((first['from'], first['to'], min(routes)) == (0, 4, 50), 'the first route goes from 0 to 4', str(first))
    tally.check([o for o in objects if o['kind'] == 'group'][-1]['members'] == [5, 2], 'member order is kept')


def overrides(folder):
    path = running.write_topology(folder, 'test', {'pipeline': 2}, generate_keys('/nowhere'))
    expect('--set changes the mesh and the launch command', ferry('plan', path, '--set', 'mesh.pipeline=3'), 0,
           ['3 ranks', 'mpirun -n 3', '--set mesh.pipeline=3'])
    expect('a wrong override', ferry('plan', path, '--set', 'mesh.pipelin=3'), 3, err=['pipeline'])
    expect('a topology that is not there', ferry('plan', path + '.no'), 9, err=['test.yaml.no'])


def mistakes(folder):
    llama = os.path.join(MODELS, 'llama')
    expect('more stages than layers (B143)', plan(folder, mesh={'pipeline': 3}, generate=generate_keys(llama)), 3,
           err=['test.yaml:', '3 stages, but the model has only 2 layers', '^'])
    expect('tensor degree beyond the heads (B139)', plan(folder, mesh={'tensor': 64}, generate=generate_keys(llama)), 3,
           err=['query heads', 'possible', 'key/value heads', 'tensor 64'])
    expect('an expert axis with a dense model', plan(folder, mesh={'expert': 2}, generate=generate_keys(llama)), 3,
           err=['mesh.expert'])
    expect('layers that do not add up', plan(folder, mesh={'pipeline': 2}, generate=generate_keys(llama, layers=[1, 2])),
           3, err=['the sum is 3, the model has 2 layers'])
    expect('a context beyond the model (B153)', plan(folder, generate=generate_keys(llama, context=1000000)), 3,
           err=['1000000', 'context'])
    expect('a model that is asked for must be there', plan(folder, '--model', '/nowhere', generate=generate_keys(llama)),
           9, err=['/nowhere'])
    expect("the topology's own model may be elsewhere", plan(folder, mesh={'pipeline': 2},
                                                            generate=generate_keys('/nowhere')), 0,
           ['verdict    sound, but for the model, which is not here', 'hidden 1..2147483647] unknown size\n', 'the model (there is no /nowhere): layers, heads'])
    expect('a misspelt model is looked for beside the topology', plan(folder, generate=generate_keys('modls/x')), 0,
           [f'the model (there is no {folder}/modls/x)'])
    empty = os.path.join(folder, 'empty')
    os.makedirs(empty)
    expect("a folder that is no model's says which key named it, and what is expected",
           plan(folder, generate=generate_keys(empty)), 9,
           err=['workload.generate.model (line ', f'{empty}/config.json: cannot open', 'expected a Hugging Face folder ('])
    expect('and with --set', plan(folder, '--set', f'workload.generate.model={empty}', generate=generate_keys(llama)), 9,
           err=[f'workload.generate.model (--set workload.generate.model='])
    open(os.path.join(empty, 'one.gguf'), 'wb').close()
    expect('a folder with a GGUF file names it', plan(folder, generate=generate_keys(empty)), 9,
           err=['or the path of a GGUF file: one.gguf'])
    expect('a file of a folder is not its model', plan(folder, generate=generate_keys(os.path.join(llama, 'config.json'))), 4,
           err=['config.json is not the saved output of `ferry inspect --json` (a Hugging Face model is opened by its folder)'])
    expect('all errors come in one run', plan(folder, mesh={'pipeline': 3, 'expert': 2},
                                             generate=generate_keys(llama, context=1000000)), 3,
           err=['mesh.pipeline', 'mesh.expert', 'workload.generate.context'])


def read_safetensors(path):
    with open(path, 'rb') as file:
        size = struct.unpack('<Q', file.read(8))[0]
        return json.loads(file.read(size)), file.read()


def write_safetensors(path, header, data):
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + data)


def damaged_model(folder, change):
    """A copy of the small llama whose header was changed."""
    copy = os.path.join(folder, 'model')
    shutil.copytree(os.path.join(MODELS, 'llama'), copy)
    path = os.path.join(copy, 'model.safetensors')
    header, data = read_safetensors(path)
    data = change(header, data) or data
    write_safetensors(path, header, data)
    return copy


def tensors():
    name = 'model.layers.1.mlp.down_proj.weight'

    def transpose(header, data):
        header[name]['shape'].reverse()

    def rename(header, data):
        header['model.layers.1.mlp.down.weight'] = header.pop(name)

    def extra(header, data):
        header['model.extra.weight'] = {'dtype': 'F32', 'shape': [2], 'data_offsets': [len(data), len(data) + 8]}
        return data + b'\0' * 8

    def buffer(header, data):
        header['model.layers.0.self_attn.rotary_emb.inv_freq'] = {
            'dtype': 'F32', 'shape': [2], 'data_offsets': [len(data), len(data) + 8]}
        return data + b'\0' * 8

    for what, change, code, texts in [
            ('another shape (B112)', transpose, 4, [name, 'has shape [', 'expected [']),
            ('a missing tensor', rename, 4, [name, 'missing']),
            ('an unexpected tensor is named (B111)', extra, 0, ['warning', 'model.extra.weight']),
            ('a rotary buffer is no warning', buffer, 0, ['rotary buffers'])]:
        with tempfile.TemporaryDirectory() as folder:
            model = damaged_model(folder, change)
            result = plan(folder, generate=generate_keys(model))
            expect(what, result, code, texts if code == 0 else (), texts if code else ())
            if change is buffer:
                tally.check('warning' not in result.out, 'indeed none', result.out)
            if change is rename:
                expect('inspect shows it nevertheless', ferry('inspect', model), 0, [name, 'missing'])


def config_only():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, 'config')
        os.mkdir(model)
        shutil.copy(os.path.join(MODELS, 'llama', 'config.json'), model)
        whole = plan(folder, '--json', generate=generate_keys(os.path.join(MODELS, 'llama')))
        bare = plan(folder, '--json', '--model', model, generate=generate_keys('/nowhere'))
        ranks = [next(o for o in map(json.loads, r.out.splitlines()) if o['kind'] == 'rank') for r in (whole, bare)]
        tally.check(ranks[0] == ranks[1], 'config.json alone gives the same bytes', str(ranks))


def invalid_heads(folder):
    model = os.path.join(folder, 'config')
    os.mkdir(model)
    with open(os.path.join(MODELS, 'llama', 'config.json'), encoding='utf-8') as file:
        config = json.load(file)
    config.update(num_attention_heads=8, num_key_value_heads=3)
    with open(os.path.join(model, 'config.json'), 'w', encoding='utf-8') as file:
        json.dump(config, file)
    expect('query heads that are no multiple of key/value heads (B139)',
           plan(folder, mesh={'tensor': 2}, generate=generate_keys(model)), 4, err=['8 query heads', '3 key/value heads'])


def large(folder):
    start = time.monotonic()
    result = plan(folder, mesh={'data': 25, 'pipeline': 1000, 'tensor': 4})
    print(f'# 100000 ranks planned and shown in {time.monotonic() - start:.2f} s', file=sys.stderr)
    expect('100,000 ranks', result, 0, ['100000 ranks'])
    start = time.monotonic()
    result = plan(folder, '--json', mesh={'data': 25, 'pipeline': 1000, 'tensor': 4})
    print(f'# and written as JSON in {time.monotonic() - start:.2f} s', file=sys.stderr)
    tally.check(result.out.count('"kind":"rank"') == 100000, 'all of them in JSON')


def inspect():
    result = ferry('inspect', os.path.join(MODELS, 'llama'))
    expect('inspect lists facts and tensors', result, 0, ['LlamaForCausalLM', 'model.embed_tokens.weight', 'layers'])
    for model in ('llama', 'llama-shards', 'qwen3', 'llama-k.gguf'):
        objects = [json.loads(line) for line in ferry('inspect', os.path.join(MODELS, model), '--json').out.splitlines()]
        sizes = sum(o['bytes'] for o in objects if o['kind'] == 'tensor')
        tally.check(bool(objects) and objects[0]['kind'] == 'checkpoint' and objects[0]['bytes'] == sizes > 0
                    and objects[0]['tensors'] == len(objects) - 1, f'inspect --json {model}', str(objects[:1]))
    expect('a checkpoint that is not there', ferry('inspect', '/nowhere'), 9, err=['/nowhere'])


def slots_and_hosts(folder):
    """B50: fewer slots than ranks; B60: hosts of a file with all that surprises in one."""
    path = os.path.join(folder, 'hosts.yaml')
    head = 'ferry: 1\nname: hosts\nmesh: {pipeline: 4}\nlaunch:\n'
    for name, hosts, code, words in (
            ('B50 3 slots for 4 ranks', '  hosts: [{name: a, slots: 1}, {name: b, slots: 2}]\n', 3,
             ['hosts.yaml:5:10', '3 slots are too few for the world of 4 ranks']),
            ('B60 a host twice', '  hosts: [{name: a, slots: 2}, {name: a, slots: 2}]\n', 3,
             ['hosts.yaml:5:39', 'two hosts are named `a`: the first on line 5']),
            ('B60 slots twice', '  hosts: [{name: a, slots: 2, slots: 4}]\n', 3, ['hosts.yaml:5', 'slots']),
            ('B60 comments, no last newline', '  hosts:  # two\n    - {name: a, slots: 2} # a\n    - {name: b, slots: 2}',
             0, []),
            ('B60 a carriage return in a name', '  hosts: [{name: "a\\r", slots: 4}]\n', 3,
             ['hosts.yaml:5', 'expected a host name'])):
        for ends in ('\n', '\r\n'):
            with open(path, 'w', encoding='utf-8', newline='') as file:
                file.write((head + hosts).replace('\n', ends))
            expect(name + (', CRLF' if ends != '\n' else ''), ferry('plan', path), code, err=words)


def command_line(folder):
    expect('no command', ferry(), 2, err=['usage: ferry COMMAND'])
    expect('an unknown command names the nearest', ferry('paln'), 2, err=["did you mean 'plan'"])
    expect('help teaches', ferry('help'), 0, ['Examples:', 'plan', 'inspect'])
    expect('help on a command', ferry('help', 'plan'), 0, ['--set', 'Examples:'])
    expect('--help is the same', ferry('plan', '--help'), 0, ['--set', 'Examples:'])
    for command in ('run', 'plan', 'bench', 'check', 'inspect', 'doctor'):
        result = ferry(command, '--help')
        examples = result.out.partition('Examples:\n')[2].partition('\n\n')[0].splitlines()
        tally.check(result.code == 0 and examples and all(line.startswith('  ') for line in examples),
                    f'no example of {command} is wrapped', result.summary())
        expect(f'{command} and an empty path', ferry(command, ''), 2, err=['the path of the ', ' is empty'])
    expect('version', ferry('version'), 0, ['ferry '])
    slots_and_hosts(folder)
    for words in (('help', 'plan', 'x'), ('--help', 'plan', 'x'), ('--version', 'x')):
        expect('too many words: ' + ' '.join(words), ferry(*words), 2, err=["takes no argument 'x'"])
    expect('too many words: version x', ferry('version', 'x'), 2, err=['ferry version'])
    expect('--help and a command', ferry('--help', 'plan'), 0, ['--set', 'Examples:'])
    expect('an unknown option', ferry('plan', '--frob'), 2, err=['frob'])
    expect('no topology', ferry('plan'), 2, err=['which topology'])
    if os.path.exists('/dev/full'):
        path = running.write_topology(folder, 'test', {'pipeline': 2})
        result = running.execute(['/bin/sh', '-c', f'"$0" plan "$1" > /dev/full', running.FERRY, path], timeout=30)
        expect('output that cannot be written', result, 9, err=['standard output'])
    result = running.execute(['ldd', running.FERRY], timeout=30)
    tally.check('mpi' not in result.out.lower() and 'cuda' not in result.out.lower(), 'neither MPI nor CUDA is linked',
                result.out)


examples()
tensors()
config_only()
inspect()
for test in (tree, as_json, overrides, mistakes, invalid_heads, large, command_line):
    with tempfile.TemporaryDirectory() as scratch:
        test(scratch)
tally.finish()
