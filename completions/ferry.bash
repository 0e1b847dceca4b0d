# bash completion for ferry: commands, options, files, groups and routes.  It leaves the shell's options as they are, and
# works with any: what names files is told by two plain patterns, as one for both would need extglob.

# The groups and routes of the topology that stands among the words so far, as `ferry plan` names them.
_ferry_targets() {
    local word
    for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
        [[ $word == *.yaml || $word == *.yml ]] || continue
        "${COMP_WORDS[0]}" plan "${word/#\~/$HOME}" --json 2>/dev/null |
            sed -n 's/^{"kind":"\(group\|route\)","id":[0-9]*,"name":"\([^"]*\)".*/\2/p'
        return
    done
}

_ferry() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    local commands='run check bench plan inspect doctor version help'

    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$current")
        return
    fi
    # bash hands --model=PATH over as three words.
    if [[ $current == '=' ]]; then
        current=''
    elif [[ $previous == '=' ]]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case $previous in
    --model | -m | --svg)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --operation)
        mapfile -t COMPREPLY < <(compgen -W "all_reduce_sum all_gather_even all_gather_uneven variable_all_to_all \
            broadcast barrier failure_agreement send_receive" -- "$current")
        return
        ;;
    --target)
        compopt +o filenames 2>/dev/null # a name with a slash is no path
        mapfile -t COMPREPLY < <(compgen -W "$(_ferry_targets)" -- "$current")
        return
        ;;
    --set | -s) # keys of lists need a number, which only the file knows
        compopt -o nospace +o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -S = -W "$("${COMP_WORDS[0]}" help keys 2>/dev/null | grep -v '\[')" -- "$current")
        return
        ;;
    --sizes | --repeats | --rank | -r | --fault | --top-logits)
        return
        ;;
    esac
    if [[ $current == -* ]]; then
        local options='--help'
        case $command in
        run) options+=' --set --json --quiet --logits-digest --top-logits --fault' ;;
        check) options+=' --set --json --quiet --fault' ;;
        bench) options+=' --set --json --svg --sizes --repeats --target --operation' ;;
        plan) options+=' --set --model --rank --json' ;;
        inspect | doctor | version) options+=' --json' ;;
        esac
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
        return
    fi
    case $command in
    help) mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current") ;;
    run | check | bench | plan)
        mapfile -t COMPREPLY < <(
            compgen -f -X '!*.yaml' -- "$current"
            compgen -f -X '!*.yml' -- "$current"
            compgen -d -- "$current"
        )
        ;;
    inspect) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    doctor) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    esac
}

complete -o filenames -F _ferry ferry
