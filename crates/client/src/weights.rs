//! What a user says of what a job needs most: `int=1,double=3`.

use tutti_types::Weights;
use tutti_types::limits::WEIGHT_MAX;

/// Reads weights; figures that are not named count nothing.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn weights(text: &str) -> Result<Weights, String> {
    let mut weights = Weights::NONE;
    let mut named = Vec::new();
    for word in text.split(',') {
        let (name, value) = word.split_once('=').ok_or_else(|| {
            format!("{word:?} weighs nothing; write FIGURE=N, such as int=1,double=3")
        })?;
        if named.contains(&name) {
            return Err(format!("{name} is named twice"));
        }
        named.push(name);
        let weight = match name {
            "int" => &mut weights.int,
            "float" => &mut weights.float,
            "double" => &mut weights.double,
            "memory" => &mut weights.memory,
            "network" => &mut weights.network,
            "latency" => &mut weights.latency,
            _ => {
                return Err(format!(
                    "there is no figure {name:?}; there are int, float, double, memory, network, \
                     latency"
                ));
            }
        };
        let value = value.parse::<u32>().ok().filter(|&value| u64::from(value) <= WEIGHT_MAX);
        *weight = value.ok_or_else(|| format!("{name} may count from 0 to {WEIGHT_MAX}"))?;
    }
    if weights.sum() == 0 {
        return Err("at least one figure must count more than 0".into());
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::weights;
    use tutti_types::Weights;

    #[test]
    fn what_is_not_named_counts_nothing() {
        let expected = Weights { int: 1, double: 3, ..Weights::NONE };
        assert_eq!(weights("int=1,double=3"), Ok(expected));
        let network = Weights { network: 2, latency: 1, ..Weights::NONE };
        assert_eq!(weights("network=2,latency=1"), Ok(network));
        for wrong in
            ["", "int", "int=", "int=1,", "speed=1", "int=-1", "int=1001", "int=0", "int=1,int=2"]
        {
            assert!(weights(wrong).is_err(), "{wrong}");
        }
    }
}
